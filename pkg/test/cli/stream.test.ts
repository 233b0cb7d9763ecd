import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { serveFiles } from "../source/support/server.ts";
import { DEMO, path, start } from "./support/ternlight.ts";

/** Goes on until its context is full: time enough to meet it on the way. */
const LONG = ["run", DEMO, "-p", "Once upon a time", "--ignore-eos", "--temp", "0", "--threads", "1"];

/** Resolves with the first text on stdout. */
const firstText = (child: ReturnType<typeof start>["child"]) =>
  new Promise<string>((resolve) => child.stdout!.once("data", (text) => resolve(String(text))));

/** The demo model on a server. `sent` resolves when somebody has its weights, and so listens to signals. */
async function served(context: TestContext): Promise<{ url: string; sent: Promise<void> }> {
  const folder = path("pkg/models/ternlight-demo");
  const names = (await readdir(folder)).filter((name) => name !== "README.md");
  const files = await Promise.all(names.map(async (name) => [name, await readFile(`${folder}/${name}`)]));
  let tell = () => {};
  const sent = new Promise<void>((resolve) => (tell = resolve));
  const { url } = await serveFiles(context, Object.fromEntries(files), {
    answer({ method, url }, response) {
      if (method === "GET" && url?.endsWith("/model.safetensors")) response.once("finish", tell);
      return false;
    },
  });
  return { url, sent };
}

test("text comes as it is made", async () => {
  const { child, ended } = start(LONG);
  let parts = 0;
  child.stdout!.on("data", () => parts++);
  const first = await firstText(child);
  assert.equal(child.exitCode, null, "it runs while its first words are there");
  const { status, stdout } = await ended;
  assert.equal(status, 0);
  assert.ok(first.length < stdout.length / 4, "the first part is a small one");
  assert.ok(parts > 10, `${parts} parts`);
});

test("Ctrl-C ends a generation with the text so far and 130", async () => {
  const { child, ended } = start(LONG);
  await firstText(child);
  child.kill("SIGINT");
  const { status, stdout, stderr } = await ended;
  assert.equal(status, 130, stderr);
  assert.match(stdout, /^ there.*\n$/s);
  assert.match(stderr, / tokens?( at \S+ tokens\/s)? · stopped · /);
});

test("Ctrl-C under --json leaves one whole object", async (context) => {
  const { url, sent } = await served(context);
  const { child, ended } = start(["run", url, ...LONG.slice(2), "--no-cache", "--json"]);
  await sent;
  // Nothing is said before the end, so only time tells that it generates; a signal before that finds the load.
  await sleep(250);
  child.kill("SIGINT");
  const { status, stdout } = await ended;
  const answer = JSON.parse(stdout);
  if (status === 0) assert.equal(answer.finishReason, "length");
  else {
    assert.equal(status, 130);
    assert.ok(answer.finishReason === "stopped" || answer.error.code === "Interrupted", stdout);
  }
});

test("Ctrl-C while something is computed that has no half ends it with 130", async (context) => {
  const { url, sent } = await served(context);
  const { child, ended } = start(["perplexity", url, path("tests/golden/fairy-bitnet/heldout.txt"), "--no-cache"]);
  await sent;
  await sleep(500);
  child.kill("SIGINT");
  const { status, stdout, stderr } = await ended;
  assert.equal(status, 130);
  assert.equal(stdout, "");
  assert.equal(stderr, "ternlight: interrupted\n");
});

test("who stops reading has enough: no error, no noise", async () => {
  const { child, ended } = start(LONG);
  await firstText(child);
  child.stdout!.destroy();
  const { status, signal, stderr } = await ended;
  assert.equal(status, 0, stderr);
  assert.equal(signal, null);
  assert.equal(stderr, "");
});

test("a result that cannot be written fails, in every runtime", async () => {
  const bun = path("pkg/test/hosts/node_modules/.bin/bun");
  for (const host of [process.execPath, bun]) {
    const { status, stderr } = await start(["inspect", DEMO], ["sh", "-c", `exec "$0" "$@" >/dev/full`, host]).ended;
    assert.equal(status, 1, host);
    assert.match(stderr, /^ternlight: standard output: ENOSPC/);
  }
});

test("who does not read what is noted gets the whole answer all the same", async () => {
  const { child, ended } = start([...LONG, "-n", "4"]);
  child.stderr!.destroy();
  const { status, stdout } = await ended;
  assert.equal(status, 0);
  assert.equal(stdout, " there lived a man\n");
  const failing = start(["run", "nowhere.gguf", "-p", "a", "--json"]);
  failing.child.stderr!.destroy();
  const told = await failing.ended;
  assert.equal(told.status, 1);
  assert.equal(JSON.parse(told.stdout).error.code, "NotFound");
});
