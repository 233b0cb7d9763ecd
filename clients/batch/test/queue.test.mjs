/** Jobs on real brokers: submitted twice, cancelled, tried again, drained; poison, late finishers, results that nobody collects. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { cancel, collect, drain, retry, status, submit, work } from "@ternlight/batch";
import { JobFolder } from "../dist/folder.js";
import { openQueue, shownUrl } from "../dist/queue.js";
import { broker, missing } from "./support/brokers.mjs";
import { answering, expected, IDENTITY, rows } from "./support/lines.mjs";

const kinds = ["redis", "postgres"];
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function place(context, kind) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-jobs-"));
  const made = await broker(kind);
  const ends = [];
  context.after(async () => {
    for (const end of ends) await end();
    await made.end();
    await rm(folder, { recursive: true, force: true });
  });
  return { queue: made.url, folder, out: path.join(folder, "out.jsonl"), before: (end) => ends.push(end) };
}

const give = ({ folder }, lines, more = {}) =>
  submit({ folder, rows: rows(lines), identity: IDENTITY, model: "m", chunk: 8, ...more });
const read = (out) => ({
  out: readFileSync(out, "utf8"),
  errors: readFileSync(out.replace(".jsonl", ".errors.jsonl"), "utf8"),
});

for (const kind of kinds) {
  const why = missing(kind);
  const options = why ? { skip: `${why} is not installed` } : {};

  test(`a job is worked on once, however often it is given (${kind})`, options, async (context) => {
    const at = await place(context, kind);
    const [job, again] = [await give(at, 100), await give(at, 100)];
    assert.deepEqual(again, job);
    assert.equal((await give(at, 101)).id === job.id, false);
    const queued = { ...at, job: job.id, out: null };
    await collect(queued);
    await collect(queued);
    const [before] = await status(at, job.id);
    assert.equal(before.queue.waiting, job.chunks, "the same chunks are not added twice");
    const events = [];
    const worker = await work({ ...at, model: answering(), onEvent: (event) => events.push(event) });
    at.before(() => worker.close());
    const found = await collect({ ...at, job: job.id });
    assert.deepEqual(found, { lines: 100, failed: 2, total: 100 });
    assert.deepEqual(read(at.out), expected(100));
    assert.equal(events.filter(({ what }) => what === "answered").length, job.chunks);
    assert.equal((await status(at, job.id))[0].state, "done");
    // Everything is there already: nothing goes to the queue.
    const seen = events.length;
    await collect({ ...at, job: job.id });
    await wait(200);
    assert.equal(events.length, seen);
  });

  test(`a job is cancelled, and goes on by retry (${kind})`, options, async (context) => {
    const at = await place(context, kind);
    const job = await give(at, 80);
    const worker = await work({ ...at, model: answering({ ms: 30 }), chunks: 1 });
    at.before(() => worker.close());
    const collecting = assert.rejects(collect({ ...at, job: job.id }), { code: "Interrupted" });
    while ((await status(at, job.id))[0].done < 2) await wait(20);
    await cancel(at, job.id);
    await collecting;
    await wait(300);
    const [{ state, done }] = await status(at, job.id);
    assert.equal(state, "cancelled");
    assert.ok(done >= 2 && done < job.chunks, `${done} chunks`);
    assert.equal(await retry(at, job.id), job.chunks - done);
    await collect({ ...at, job: job.id });
    assert.deepEqual(read(at.out), expected(80));
  });

  test(`drained workers take no more, until they may again (${kind})`, options, async (context) => {
    const at = await place(context, kind);
    const job = await give(at, 60);
    await drain(at);
    const worker = await work({ ...at, model: answering() });
    at.before(() => worker.close());
    await collect({ ...at, job: job.id, out: null });
    await wait(500);
    const [{ done, queue }] = await status(at);
    assert.deepEqual([done, queue.paused, queue.waiting], [0, true, job.chunks]);
    await drain(at, { off: true });
    await collect({ ...at, job: job.id });
    assert.deepEqual(read(at.out), expected(60));
  });
}

const options = missing("redis") ? { skip: `${missing("redis")} is not installed` } : {};

test("a line that ends its workers ends alone, in the file of errors", options, async (context) => {
  const at = await place(context, "redis");
  const job = await give(at, 24);
  const script = fileURLToPath(new URL("support/worker.mjs", import.meta.url));
  const settings = JSON.stringify({ queue: at.queue, folder: at.folder, lease: 0.3, poison: 13, chunks: 1, ms: 1 });
  let [ended, crashes, child] = [false, 0, null];
  at.before(() => child.kill("SIGKILL"));
  const keep = async () => {
    while (!ended) {
      child = spawn(process.execPath, [script, settings], { stdio: "ignore" });
      const [, signal] = await once(child, "exit");
      if (signal === "SIGKILL" && !ended) crashes++;
    }
  };
  const keeping = keep();
  await collect({ ...at, job: job.id });
  ended = true;
  child.kill("SIGKILL");
  await keeping;
  const found = read(at.out);
  const whole = expected(24);
  const lines = whole.out.split("\n");
  assert.equal(found.out, lines.filter((line) => !line.includes('"line-14"')).join("\n"));
  assert.match(found.errors, /"custom_id":"line-14".*"code":"worker_lost"/);
  assert.ok(crashes >= 6 && crashes <= 12, `${crashes} crashes`);
  // With the reason away, retry gives it another chance.
  assert.equal(await retry(at, job.id), 1);
  const worker = await work({ ...at, model: answering() });
  await collect({ ...at, job: job.id });
  await worker.close();
  assert.equal(readFileSync(at.out, "utf8"), whole.out);
});

test("who finishes late overwrites nothing, and leaves nothing", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-jobs-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const job = await JobFolder.open(folder, (await give({ folder }, 10)).id);
  const answers = (text) => [{ text, failed: false }];
  await Promise.all(["first", "second"].map((text) => job.keep(answers(text), 0)));
  await job.keep(answers("third"), 0);
  const [{ text }] = await job.answers(0);
  assert.ok(["first", "second"].includes(text));
  assert.deepEqual(await readdir(path.join(job.path, "answers", "000000")), ["0"]);
  await assert.rejects(JobFolder.open(folder, "../x"), { code: "NotFound" });
});

test("workers do not run far ahead of who collects", options, async (context) => {
  const at = await place(context, "redis");
  const job = await give(at, 8 * 30, { chunk: 1 });
  const stop = new AbortController();
  const collecting = collect({
    ...at,
    job: job.id,
    window: 20,
    signal: stop.signal,
    // The first chunk is there, and then nobody looks at the others.
    onProgress: () => stop.abort(new Error("enough")),
  });
  const worker = await work({ ...at, model: answering() });
  at.before(() => worker.close());
  await assert.rejects(collecting, /enough/);
  await wait(500);
  const [{ done }] = await status(at, job.id);
  assert.equal(done, 20);
});

test("a queue that is none, or does not answer, is told without its password", async () => {
  await assert.rejects(openQueue("mysql://a:secret@localhost", "x"), { code: "InvalidArgument" });
  const error = await openQueue("redis://user:secret@127.0.0.1:1", "x").catch((error) => error);
  assert.equal(error.code, "Network");
  assert.doesNotMatch(error.message + error.stack, /secret/);
  assert.equal(shownUrl("rediss://user:secret@host:1/2"), "rediss://host:1/2");
});
