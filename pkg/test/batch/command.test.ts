/** The command `batch`: every kind of line, the same bytes whatever happens to the run. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createReadStream, existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import zlib from "node:zlib";
import { DEMO, done, failure, path as inRepository, json, start, ternlight } from "../cli/support/ternlight.ts";

let dir = "";
const at = (name: string) => path.join(dir, name);
const MODEL = ["--model", DEMO, "--threads", "1"];
const LINES = 64;

/** Lines of all kinds; sampled, without a seed, unless they say otherwise. */
function line(i: number): string {
  const custom_id = `request ${i}`;
  const method = "POST";
  const words = ["king", "fox", "well", "bread"][i % 4];
  const requests = [
    {
      url: "/v1/chat/completions",
      body: { model: "m", messages: [{ role: "user", content: `A ${words}` }], max_tokens: 9 },
    },
    { url: "/v1/completions", body: { prompt: `The ${words}`, n: 2, max_tokens: 5 + (i % 7), logprobs: 1 } },
    { url: "/v1/embeddings", body: { model: "m", input: [`${words}`, "b"], encoding_format: "base64" } },
    { url: "/v1/responses", body: { model: "m", input: `Once ${i}`, max_output_tokens: 6, temperature: 1 } },
  ];
  if (i % 9 === 5) return JSON.stringify({ prompt: `Plain ${i}`, max_tokens: 4, temperature: 0 });
  if (i === 20) return "{broken";
  if (i === 40) return JSON.stringify({ custom_id, method, url: "/v1/completions", body: { prompt: "a", top_p: 7 } });
  return JSON.stringify({ custom_id, method, ...requests[i % requests.length] });
}

before(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "ternlight-batch-"));
  const text = Array.from({ length: LINES }, (_, i) => `${line(i)}\n`).join("");
  await writeFile(at("in.jsonl"), text);
  await writeFile(at("in.jsonl.gz"), zlib.gzipSync(text));
  await writeFile(at("in.jsonl.zst"), zlib.zstdCompressSync(Buffer.from(text)));
  await done("batch", at("in.jsonl"), ...MODEL, "--out", at("out.jsonl"));
});
after(() => rm(dir, { recursive: true, force: true }));

const read = async (name: string) => [
  await readFile(at(name)),
  await readFile(at(name.replace(".jsonl", ".errors.jsonl"))),
];
// biome-ignore lint/suspicious/noExplicitAny: what a line holds is what the tests check
const lines = (bytes: Buffer): any[] =>
  bytes
    .toString()
    .trimEnd()
    .split("\n")
    .map((one) => JSON.parse(one));

test("each line has its answer, in the order of the input, and errors are in a file of their own", async () => {
  const [out, errors] = (await read("out.jsonl")).map(lines);
  const index = ({ custom_id: id }: { custom_id: string }) =>
    id.startsWith("line-") ? Number(id.slice(5)) - 1 : Number(id.slice(8));
  assert.deepEqual(
    out!.map(index),
    Array.from({ length: LINES }, (_, i) => i).filter((i) => i !== 20 && i !== 40),
  );
  for (const { id, response, error } of out!) {
    assert.match(id, /^batch_req_[0-9a-f]{24}$/);
    assert.equal(response.status_code, 200);
    assert.match(response.request_id, /^req_[0-9a-f]{24}$/);
    assert.equal(response.body.model, "ternlight-demo");
    assert.equal(error, null);
  }
  const kinds = new Set(out!.map(({ response }) => response.body.object));
  assert.deepEqual([...kinds].sort(), ["chat.completion", "list", "response", "text_completion"]);
  assert.equal(new Set(out!.map(({ id }) => id)).size, out!.length);
  const told = errors!.map((one) => [index(one), one.response.status_code, one.response.body.error.param]);
  assert.deepEqual(told, [
    [20, 400, null],
    [40, 400, "top_p"],
  ]);
});

test("with --recommend as many lines at once as a probe finds, and the same bytes", async () => {
  await done("batch", at("in.jsonl"), ...MODEL, "--out", at("recommended.jsonl"), "--recommend");
  assert.deepEqual(await read("recommended.jsonl"), await read("out.jsonl"));
});

test("chunks, workers, threads, packed input and standard input change no byte", async () => {
  const whole = await read("out.jsonl");
  const out = (name: string) => ["--out", at(name)];
  const demo = ["--model", DEMO];
  await done("batch", at("in.jsonl.gz"), ...demo, ...out("a.jsonl"), "--chunk", "3", "--workers", "2");
  await done(
    "batch",
    at("in.jsonl.zst"),
    ...demo,
    ...out("b.jsonl"),
    "--chunk",
    "1000",
    "--threads",
    "2",
    "--max-sequences",
    "5",
  );
  const args = [inRepository("pkg/dist/cli.js"), "batch", "-", ...MODEL, ...out("c.jsonl"), "--flavour", "simd128"];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "ignore", "inherit"] });
  createReadStream(at("in.jsonl")).pipe(child.stdin!);
  assert.deepEqual(await once(child, "exit"), [0, null]);
  for (const name of ["a.jsonl", "b.jsonl", "c.jsonl"]) assert.deepEqual(await read(name), whole, name);
});

test("a run that is killed again and again ends with the same bytes", async () => {
  const run = [at("in.jsonl"), ...MODEL, "--out", at("killed.jsonl"), "--chunk", "4", "--resume"];
  let kills = 0;
  for (let grown = 3000; ; grown += 4000) {
    const { child, ended } = start(["batch", ...run]);
    // Some are killed with what they have just written, some while they load.
    const timer = setInterval(async () => {
      const found = await stat(at("killed.jsonl.journal")).catch(() => null);
      if (found && found.size > grown) child.kill("SIGKILL");
    }, 1);
    const { status, signal, stderr } = await ended;
    clearInterval(timer);
    if (status === 0) break;
    assert.equal(signal, "SIGKILL", stderr);
    assert.ok(!existsSync(at("killed.jsonl")));
    kills++;
  }
  assert.ok(kills >= 3, `${kills} kills`);
  assert.deepEqual(await read("killed.jsonl"), await read("out.jsonl"));
});

test("Ctrl-C keeps what is done, and a run without --resume does not overwrite it", async () => {
  const run = [at("in.jsonl"), ...MODEL, "--out", at("stopped.jsonl"), "--chunk", "2"];
  const { child, ended } = start(["batch", ...run]);
  const timer = setInterval(async () => {
    const found = await stat(at("stopped.jsonl.journal")).catch(() => null);
    if (!found || found.size < 6000) return;
    // A second one would end it at once.
    clearInterval(timer);
    child.kill("SIGINT");
  }, 20);
  const { status, stderr } = await ended;
  clearInterval(timer);
  assert.equal(status, 130, stderr);
  assert.match(stderr, /lines are done; --resume goes on with the rest/);
  const { code, detail } = await failure(1, "batch", ...run);
  assert.deepEqual([code, detail.option], ["InvalidArgument", "--resume"]);
  const other = await failure(1, "batch", ...run, "--resume", "--default-max-tokens", "3");
  assert.equal(other.code, "WrongModel");
  const found = await json("batch", ...run, "--resume");
  assert.equal(found.lines, LINES);
  assert.equal(found.failed, 2);
  assert.ok(found.resumed > 0 && found.resumed < LINES);
  assert.deepEqual(await read("stopped.jsonl"), await read("out.jsonl"));
});

test("CSV with a template is answered like the requests that it makes", async () => {
  await writeFile(at("in.csv"), "name,custom_id\nThe king,a\nThe fox,b\n");
  const request = '{"prompt":"{{name}} said","max_tokens":5,"temperature":0}';
  await done(
    "batch",
    at("in.csv"),
    ...MODEL,
    "--out",
    at("csv.jsonl"),
    "--template",
    request,
    "--errors",
    at("none.jsonl"),
  );
  const [out] = [lines(await readFile(at("csv.jsonl")))];
  assert.deepEqual(
    out!.map(({ custom_id: id }) => id),
    ["a", "b"],
  );
  assert.equal((await readFile(at("none.jsonl"))).length, 0, "a file that was asked for is there");
  const { text } = await json("run", DEMO, "-p", "The fox said", "-n", "5", "--temp", "0", "--threads", "1");
  assert.equal(out![1].response.body.choices[0].text, text);
  assert.equal((await failure(1, "batch", at("in.csv"), ...MODEL, "--out", at("new.jsonl"))).code, "InvalidArgument");
});

test("a finished file is not computed again, nor replaced unasked", async () => {
  await writeFile(at("short.jsonl"), '{"prompt":"A king","max_tokens":3}\n');
  const run = (...more: string[]) => ["batch", at("short.jsonl"), ...MODEL, "--out", at("finished.jsonl"), ...more];
  await writeFile(at("finished.jsonl"), "what was there\n");
  const kept = async () => (await readFile(at("finished.jsonl"), "utf8")) === "what was there\n";
  const { code, detail } = await failure(1, ...run());
  assert.deepEqual([code, detail.file], ["Exists", at("finished.jsonl")]);
  assert.ok(await kept());
  assert.match((await done(...run("--resume"))).stderr, /is whole: nothing is left to do/);
  assert.deepEqual(await json(...run("--resume")), { out: at("finished.jsonl"), nothingToDo: true });
  assert.ok(await kept());
  // A run that was killed before its first answer is to be gone on with.
  for (const left of ["finished.jsonl.journal", "finished.jsonl.part"]) await writeFile(at(left), "");
  await done(...run("--resume"));
  assert.ok(!(await kept()));
  await writeFile(at("finished.jsonl"), "what was there\n");
  assert.equal((await json(...run("--force"))).lines, 1);
  assert.ok(!(await kept()));
});

test("a run that was left is said to have ended only where that is known", async () => {
  const args = ["batch", at("in.jsonl"), ...MODEL, "--out", at("left.jsonl")];
  const { child, ended } = start(args);
  while (child.exitCode === null && !existsSync(at("left.jsonl.journal"))) await sleep(5);
  while (child.exitCode === null && (await stat(at("left.jsonl.journal"))).size < 1000) await sleep(5);
  child.kill("SIGKILL");
  await ended;
  assert.match((await failure(1, ...args)).message, /journal is of a run that ended early: --resume goes on with it;/);
  const unlocked = 'data:text/javascript,Object.defineProperty(process, "platform", { value: "freebsd" })';
  const { status, stderr } = await start(args, [process.execPath, "--import", unlocked]).ended;
  assert.equal(status, 1);
  assert.match(stderr, /is of a run that has not finished, and this system does not tell whether it still runs: once/);
});

test("a file of errors is not replaced unasked either", async () => {
  await writeFile(at("one.jsonl"), '{"prompt":"A king","max_tokens":3}\n');
  const run = (...more: string[]) => ["batch", at("one.jsonl"), ...MODEL, "--out", at("guarded.jsonl"), ...more];
  for (const [errors, ...named] of [["guarded.errors.jsonl"], ["precious.jsonl", "--errors", at("precious.jsonl")]]) {
    await writeFile(at(errors!), "mine\n");
    for (const resumed of [[], ["--resume"]]) {
      const { code, detail } = await failure(1, ...run(...named, ...resumed));
      assert.deepEqual([code, detail.file], ["Exists", at(errors!)]);
    }
    assert.equal(await readFile(at(errors!), "utf8"), "mine\n");
    assert.ok(!existsSync(at("guarded.jsonl")));
  }
  // It is of a run with another --out that ended early.
  await writeFile(at("shared.jsonl.part"), "");
  const shared = await failure(1, ...run("--errors", at("shared.jsonl")));
  assert.deepEqual([shared.code, shared.detail.file], ["Exists", at("shared.jsonl.part")]);
  await done(...run("--force"));
  // This run's would be empty.
  assert.ok(!existsSync(at("guarded.errors.jsonl")));
});

test("a run that is under way is told as such, by all of its files", async (context) => {
  await writeFile(at("slow.jsonl"), '{"prompt":"A king","max_tokens":3}\n');
  const run = (out: string, errors: string) => ["batch", "-", ...MODEL, "--out", at(out), "--errors", at(errors)];
  const args = [inRepository("pkg/dist/cli.js"), ...run("alive.jsonl", "alive.errors")];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "ignore", "inherit"] });
  context.after(() => child.kill("SIGKILL"));
  // Its input does not end, so that it stays under way with an answer in its journal.
  child.stdin!.write('{"prompt":"A king","max_tokens":3}\n');
  const size = async () => (await stat(at("alive.jsonl.journal")).catch(() => null))?.size ?? 0;
  while ((await size()) < 300) await new Promise((resolve) => setTimeout(resolve, 20));
  for (const [out, errors, held] of [
    ["alive.jsonl", "other.errors", "alive.jsonl"],
    ["other.jsonl", "alive.errors", "alive.errors"],
    ["other.jsonl", "alive.jsonl", "alive.jsonl"],
  ] as const) {
    const { code, message } = await failure(1, ...run(out, errors));
    assert.deepEqual([code, message], ["Unwritable", `${at(held)} is being written by another run`]);
  }
  child.stdin!.end();
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.equal(lines(await readFile(at("alive.jsonl"))).length, 1);
});

test("wrong calls are told before anything is loaded, and leave nothing", async () => {
  const input = at("in.jsonl");
  const linked = at("linked");
  await symlink(dir, linked);
  await writeFile(at("half.jsonl.gz"), (await readFile(at("in.jsonl.gz"))).subarray(0, 20));
  const wrong: [number, string, ...string[]][] = [
    [2, "--model", input, "--out", at("x")],
    [2, "--out", input, "--model", DEMO],
    [2, "--out", input, "--model", DEMO, "--out", "-"],
    [2, "--out", input, "--model", DEMO, "--out", input],
    [2, "--errors", input, "--model", DEMO, "--out", at("x"), "--errors", at("x")],
    [2, "--errors", input, "--model", DEMO, "--out", at("x"), "--errors", at("x.part")],
    [2, "--out", input, "--model", DEMO, "--out", at("x"), "--errors", path.join(linked, "in.jsonl")],
    [2, "--chunk", input, "--model", DEMO, "--out", at("x"), "--chunk", "0"],
  ];
  for (const [status, option, ...args] of wrong) {
    assert.equal((await failure(status, "batch", ...args)).detail.option, option, args.join(" "));
  }
  await writeFile(at("two.csv"), "name,custom_id\nThe king,a\n");
  // Nothing is in the way of the call that is right.
  for (const [code, ...args] of [
    ["NotFound", at("absent")],
    ["NotFound", at("absent"), "--resume"],
    ["Damaged", at("half.jsonl.gz")],
    ["InvalidArgument", at("two.csv")],
    ["InvalidArgument", at("two.csv"), "--template", "{{nmae}}"],
  ] as const) {
    assert.equal((await failure(1, "batch", ...args, ...MODEL, "--out", at("typed.jsonl"))).code, code, args.join(" "));
  }
  assert.deepEqual(
    (await readdir(dir)).filter((name) => name.startsWith("typed")),
    [],
  );
  await done("batch", at("two.csv"), ...MODEL, "--out", at("typed.jsonl"), "--template", "{{name}}");
  assert.equal((await failure(1, "batch", input, ...MODEL, "--out", at("no/x"))).code, "Unwritable");
});

test("a full disk ends it, and it says what goes on", async (context) => {
  const small = await mkdtemp(path.join(tmpdir(), "ternlight-small-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=16k", "tmpfs", small], { stdio: "pipe" });
  } catch {
    return context.skip("a file system of 16 kB cannot be mounted here: mount needs root");
  }
  context.after(async () => {
    execFileSync("umount", ["-l", small]);
    await rm(small, { recursive: true });
  });
  const args = ["batch", at("in.jsonl"), ...MODEL, "--out", path.join(small, "out.jsonl")];
  const { stderr } = await ternlight(...args);
  assert.match(stderr, /lines are done; --resume goes on with the rest/);
  assert.match(stderr, /Unwritable: .* cannot be written: ENOSPC/);
  execFileSync("mount", ["-o", "remount,size=8m", small]);
  await done(...args, "--resume");
});
