/** Standard input and output, hints, and what a beginner types first. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { DEMO, done, failure, json, path, type Ran, ternlight } from "./support/ternlight.ts";

const script = path("pkg/dist/cli.js");
const CHATS = path("tests/golden/gguf/llama_bitlinear.TQ2_0.gguf");

/** Runs it with bytes on standard input. */
function fed(
  input: string | Uint8Array,
  ...args: string[]
): Promise<Omit<Ran, "stdout"> & { bytes: Buffer; stdout: string }> {
  const child = spawn(process.execPath, [script, ...args], { stdio: "pipe" });
  const out: Buffer[] = [];
  let stderr = "";
  child.stdout.on("data", (chunk) => out.push(chunk));
  child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => {
      const bytes = Buffer.concat(out);
      resolve({ status, signal, stderr, bytes, stdout: bytes.toString("utf8") });
    });
  });
}

const GREEDY = ["-n", "12", "--temp", "0"];

test("a prompt comes through a pipe, as - or as -p -", async () => {
  const { stdout: expected } = await done("run", DEMO, "-p", "Once upon a time", ...GREEDY);
  for (const args of [[], ["-"], ["-p", "-"]]) {
    // What echo prints ends with a line feed, which is no part of the text.
    const { status, stdout, stderr } = await fed("Once upon a time\n", "run", DEMO, ...args, ...GREEDY);
    assert.deepEqual([status, stdout], [0, expected], stderr);
  }
  const { ids } = await json("tokenize", DEMO, "-p", "Once\n upon é");
  for (const args of [[], ["-"], ["-p", "-"]]) {
    const { stdout } = await fed("Once\n upon é\r\n", "tokenize", DEMO, ...args, "--json");
    assert.deepEqual(JSON.parse(stdout).ids, ids);
  }
  const pipe = await fed("", "run", DEMO);
  assert.equal(pipe.status, 2);
  assert.match(pipe.stderr, /either -p TEXT or --ids 1,2,3, or the text on standard input/);
  for (const args of [["-", "-p", "a"], ["-", "--ids", "1"], ["b"]]) {
    assert.equal((await fed("x", "run", DEMO, ...args)).status, 2, args.join(" "));
  }
  const bad = await fed(Uint8Array.of(0xff, 0x41), "run", DEMO);
  assert.equal(bad.status, 1);
  assert.match(bad.stderr, /BadValue: standard input is not UTF-8/);
});

test("perplexity reads standard input", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-test-"));
  context.after(() => rm(folder, { recursive: true }));
  const text = "Once upon a time there was a king who had three sons.\n";
  await writeFile(join(folder, "text"), text);
  const { stdout: expected } = await done("perplexity", DEMO, join(folder, "text"));
  assert.equal((await fed(text, "perplexity", DEMO, "-")).stdout, expected);
});

test("convert writes to standard output, and says what it did on stderr", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-test-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "a.gguf");
  await done("convert", DEMO, file);
  const { status, bytes, stderr } = await fed("", "convert", DEMO, "-");
  assert.equal(status, 0, stderr);
  assert.ok(bytes.equals(await readFile(file)), `${bytes.length} bytes`);
  assert.match(stderr, /^standard output: \d+ tensors, matrices in TQ2_0/m);
  const both = await fed("", "convert", DEMO, "-", "--json");
  assert.equal(both.status, 2);
  assert.match(both.stderr, /- as OUT\.gguf does not go with --json/);
});

test("a signal ends convert while its reader does not read, and leaves nothing behind", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-test-"));
  context.after(() => rm(folder, { recursive: true }));
  const env = { ...process.env, TMPDIR: folder };
  const child = spawn(process.execPath, [script, "convert", DEMO, "-"], { stdio: ["ignore", "pipe", "pipe"], env });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
  // It prints once the whole file has its name; the pipe holds less than that.
  while (!(await readdir(folder, { recursive: true })).some((name) => name.endsWith("model.gguf"))) await sleep(5);
  child.kill("SIGTERM");
  const [status] = await once(child, "exit");
  child.stdout.resume();
  await once(child, "close");
  assert.deepEqual([status, stderr], [143, "ternlight: interrupted\n"]);
  assert.deepEqual(await readdir(folder), []);
});

test("cache alone, and with --help, names its commands", async () => {
  for (const args of [["cache"], ["cache", "--help"], ["cache", "-h"]]) {
    const { stdout } = await done(...args);
    assert.match(stdout, /^usage: ternlight cache COMMAND/);
    assert.match(stdout, /^ {2}cache list +Shows/m);
    assert.match(stdout, /^ {2}cache delete +Deletes/m);
    assert.doesNotMatch(stdout, /inspect/);
  }
  assert.match((await failure(2, "cache", "lst")).message, /no command cache lst; the nearest is cache list/);
});

test("run hints at chat where the model has a template", async () => {
  const { stderr } = await done("run", CHATS, "-p", "What is the capital of France?", "-n", "4");
  assert.match(
    stderr,
    /^hint: the text went .*without its chat template; to talk to the model: ternlight chat \S+\.gguf$/m,
  );
  const { tokenizer } = await json("inspect", CHATS);
  const { ids } = await json("tokenize", CHATS, "-p", tokenizer.eos[0], "--no-special");
  const end = `${ids.join("=100,")}=100`;
  const nothing = (await done("run", CHATS, "-p", "What is the capital of France?", "--logit-bias", end)).stderr;
  assert.match(nothing, /^hint: the model took the text for complete and added nothing: it went /m);
  for (const args of [
    [DEMO, "-p", "Once"],
    [CHATS, "--ids", "1,2"],
    [CHATS, "-p", "<|start_header_id|>user"],
  ]) {
    assert.doesNotMatch((await done("run", ...args, "-n", "2")).stderr, /hint/, args.join(" "));
  }
});

test("more threads than there are cores: what became of them, and why", async () => {
  const { stderr } = await done("run", DEMO, "-p", "Once", "-n", "2", "--threads", "64");
  assert.match(stderr, /^(\d+) threads?: threads: 64 were asked for, and there are \1 cores$/m);
  assert.doesNotMatch((await done("run", DEMO, "-p", "Once", "-n", "2", "--threads", "1")).stderr, /asked for/);
});

test("an address of a hub that leads nowhere gets a hint", async (context) => {
  const missing = await ternlight("inspect", "someone/some-model");
  assert.match(
    missing.stderr,
    /NotFound[\s\S]*^hint: .*https:\/\/huggingface\.co\/someone\/some-model\/resolve\/main\//m,
  );
  assert.doesNotMatch((await ternlight("inspect", "./nowhere.gguf")).stderr, /hint/);
  const { hintOf } = await import("../../src/cli/hints.ts");
  const { EngineError } = await import("../../src/types/errors.ts");
  const hint = (file: string, status?: number) =>
    hintOf(new EngineError("Network", "no", { file, ...(status ? { status } : {}) }));
  const repository = "https://huggingface.co/a/b";
  assert.match(hint(`${repository}/resolve/main/x.gguf`, 401)!, /no such repository.*huggingface\.co\/a\/b$/);
  assert.match(
    hint(`${repository}/resolve/main/x.gguf`, 404)!,
    /listed at https:\/\/huggingface\.co\/a\/b\/tree\/main/,
  );
  assert.match(
    hint(`${repository}/blob/main/x.gguf`, 200)!,
    /the file is https:\/\/huggingface\.co\/a\/b\/resolve\/main\/x/,
  );
  assert.match(hint(repository)!, /that is a page/);
  assert.equal(hint(`${repository}/resolve/main/x.gguf`, 503), null);
  assert.equal(hint("https://example.com/a/b/resolve/main/x.gguf", 404), null);
  // What a hub is asked is no page, and the error of a name says what to do.
  assert.equal(hint("https://huggingface.co/api/models/a/b/tree/main"), null);
  const listed = new EngineError("Network", "no", { file: `${repository}/resolve/main/x.gguf`, status: 401 });
  assert.equal(hintOf(listed, ["run", "hf:a/b"]), null);
  // The error has what the hint is made from.
  const server = createServer((_, response) => void response.writeHead(404).end()).listen(0, "127.0.0.1");
  context.after(() => server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const { detail } = await failure(1, "inspect", `http://127.0.0.1:${(server.address() as AddressInfo).port}/a.gguf`);
  assert.equal(detail.status, 404);
});

test("what is not ternary is told before anything about its rows", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-test-"));
  context.after(() => rm(folder, { recursive: true }));
  // SmolLM2's sizes and type: 576 values in a row are no whole blocks of 256.
  const { synthetic } = await import("../../src/bench/synthetic.ts");
  const model = synthetic({ shape: "135m,layers=1,vocab=256" });
  await writeFile(join(folder, "model.gguf"), new Uint8Array(await model.arrayBuffer()));
  const { code, message } = await failure(1, "convert", join(folder, "model.gguf"), join(folder, "a.gguf"));
  assert.equal(code, "UnsupportedType");
  assert.match(message, /the weights are not ternary.*expected −1, 0 and \+1, found codes of 4 bits/);
});

test("a file that stands for a model, or for none, is told by its first bytes", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-test-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "model.gguf");
  const cases: [string, RegExp | null][] = [
    ["version https://git-lfs.github.com/spec/v1\noid sha256:0\n", /^hint: .*git lfs pull/m],
    ["PK\x03\x04\0\0\0\0\0\0", /^hint: .*pickles.*safetensors/m],
    ["<!doctype html><title>Sign in</title>", /^hint: .*page/m],
    ["another kind of file", null],
  ];
  for (const [text, hint] of cases) {
    await writeFile(file, text);
    const { status, stderr } = await ternlight("inspect", file);
    assert.equal(status, 1);
    assert.match(stderr, /BadMagic/);
    hint ? assert.match(stderr, hint) : assert.doesNotMatch(stderr, /hint/);
  }
});
