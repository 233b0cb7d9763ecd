/** Jobs on real brokers: submitted twice, cancelled, tried again, drained; poison, late finishers, results that nobody collects. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { cancel, collect, drain, openMetrics, retry, status, submit, work } from "@ternlight/batch";
import { Redis } from "ioredis";
import { JobFolder } from "../src/folder.ts";
import * as inSource from "../src/metrics.ts";
import { openStore } from "../src/open_store.ts";
import { openQueue } from "../src/queue.ts";
import { shownUrl } from "../src/url.ts";
import { done } from "../src/work.ts";
import { broker, missing } from "./support/brokers.mjs";
import { answering, expected, IDENTITY, line, rows } from "./support/lines.mjs";

/** Redis and PostgreSQL with a folder, and PostgreSQL alone. */
const kinds = ["redis", "postgres", "database"];
const skipped = (kind) => (missing(kind) ? { skip: `${missing(kind)} is not installed` } : {});
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
  const out = path.join(folder, "out.jsonl");
  const before = (end) => ends.push(end);
  return { queue: made.url, ...(kind === "database" ? {} : { folder }), out, before };
}

const give = ({ queue, folder }, lines, more = {}) =>
  submit({ queue, folder, rows: rows(lines), identity: IDENTITY, model: "m", chunk: 8, ...more });
const text = (file) => (existsSync(file) ? readFileSync(file, "utf8") : "");
const read = (out) => ({ out: text(out), errors: text(out.replace(".jsonl", ".errors.jsonl")) });

for (const kind of kinds) {
  const options = skipped(kind);

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
    assert.equal((await cancel(at, job.id)).state, "cancelled");
    await collecting;
    await wait(300);
    const [{ state, done }] = await status(at, job.id);
    assert.equal(state, "cancelled");
    assert.ok(done >= 2 && done < job.chunks, `${done} chunks`);
    // Who collects, or only adds, puts nothing of it back.
    for (const out of [at.out, null])
      await assert.rejects(collect({ ...at, job: job.id, out }), { code: "Interrupted" });
    assert.deepEqual((await status(at, job.id))[0].queue, {
      waiting: 0,
      active: 0,
      delayed: 0,
      failed: 0,
      paused: false,
    });
    assert.equal(await retry(at, job.id), job.chunks - done);
    await collect({ ...at, job: job.id });
    assert.deepEqual(read(at.out), expected(80));
  });

  test(
    `who waits for nobody is told so, and what differs in a worker that is near (${kind})`,
    options,
    async (context) => {
      const at = await place(context, kind);
      const facts = { "context length": 4096, "KV type": "f16", version: "1" };
      const job = await give(at, 60, { facts });
      const told = [];
      const onUnserved = (message) => told.push(message);
      const none = `no worker is attached to the queue of job ${job.id}`;
      await collect({ ...at, job: job.id, out: null, onUnserved });
      assert.deepEqual(told, [none]);
      const near = { ...answering(), name: "m", identity: "f".repeat(32), facts: { ...facts, "context length": 2048 } };
      const other = await work({ ...at, model: near });
      at.before(() => other.close());
      const differs = `${none}; the nearest, of m, differs in context length (2048, the job has 4096)`;
      const look = async (wanted) => {
        for (let tries = 0; ; tries++) {
          const [{ unserved, workers }] = await status(at, job.id);
          if (unserved === wanted || tries > 100)
            return assert.deepEqual([unserved, workers], [wanted, wanted ? 0 : 1]);
          await wait(20);
        }
      };
      await look(differs);
      const collecting = collect({ ...at, job: job.id, onUnserved });
      while (told.length < 2) await wait(50);
      assert.equal(told[1], differs);
      await drain(at);
      const worker = await work({ ...at, model: { ...answering(), name: "m", facts } });
      at.before(() => worker.close());
      await look(null);
      await worker.close();
      await look(differs);
      const again = await work({ ...at, model: { ...answering(), name: "m", facts } });
      at.before(() => again.close());
      await drain(at, { off: true });
      await collecting;
      assert.equal(told.length, 2);
      assert.deepEqual(read(at.out), expected(60));
    },
  );

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

for (const kind of ["redis", "database"]) {
  test(`a line that ends its workers ends alone, in the file of errors (${kind})`, skipped(kind), async (context) => {
    const at = await place(context, kind);
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
    assert.ok(crashes >= 8 && crashes <= 18, `${crashes} crashes`);
    // With the reason away, retry gives it another chance.
    assert.equal(await retry(at, job.id), 1);
    const worker = await work({ ...at, model: answering() });
    await collect({ ...at, job: job.id, force: true });
    await worker.close();
    assert.equal(readFileSync(at.out, "utf8"), whole.out);
  });

  test(`who finishes late overwrites nothing (${kind})`, skipped(kind), async (context) => {
    const at = await place(context, kind);
    const store = await openStore(at);
    at.before(() => store.close());
    const job = await store.open((await give(at, 10)).id);
    const answers = (text) => [{ text, failed: false }];
    await Promise.all(["first", "second"].map((text) => job.keep(answers(text), 0)));
    await job.keep(answers("third"), 0);
    const [{ text }] = await job.answers(0);
    assert.ok(["first", "second"].includes(text));
    if (kind === "redis") assert.deepEqual(await readdir(path.join(job.place, "answers", "000000")), ["0"]);
    for (const id of ["../x", "0".repeat(32)]) await assert.rejects(store.open(id), { code: "NotFound" });
  });
}

const redis = skipped("redis");

for (const kind of ["redis", "database"]) {
  test(
    `a line is lost by workers that died over it, not by those that lost a lease (${kind})`,
    skipped(kind),
    async (context) => {
      const at = await place(context, kind);
      const store = await openStore(at);
      at.before(() => store.close());
      const job = await store.open((await give(at, 8)).id);
      const life = { store, worker: "own", silent: 60_000 };
      const own = { life, model: answering(), closing: new AbortController().signal, onError() {} };
      // As the queue tells of it after a broker that was away, or machines that stood still: begun again and again, and ended never.
      const taken = (line) => ({ data: { job: job.info.id, chunk: 0, line }, attemptsStarted: 50, attemptsMade: 0 });
      const others = Array.from({ length: 10 }, (_, i) => `worker-${i}`);
      for (const worker of others) {
        await store.beat(worker, { identity: IDENTITY, model: "m", facts: {} });
        for (const line of [0, 1]) await job.begin(worker, 0, line);
      }
      assert.equal((await done(taken(0), job, own)).what, "answered");
      assert.deepEqual((await job.begun(0, 0)).sort(), others, "who has come to an end leaves nothing");
      for (const worker of others.slice(0, 6)) await store.leave(worker);
      assert.equal((await done(taken(1), job, own)).what, "answered");
      for (const line of [2, 3]) for (const worker of others.slice(0, 7)) await job.begin(worker, 0, line);
      await job.end(others[0], 0, 2);
      assert.equal((await done(taken(2), job, own)).what, "answered");
      await store.leave(others[6]);
      assert.equal((await done(taken(3), job, own)).what, "lost");
      // What begins anew has a clean slate.
      await job.forget(0);
      assert.deepEqual([await job.begun(0, 1), await job.begun(0, 3)], [[], []]);
    },
  );
}

test("a job is cancelled in few round trips, and other jobs stay in the queue", redis, async (context) => {
  const at = await place(context, "redis");
  const [long, other] = [await give(at, 12_000, { chunk: 1 }), await give(at, 16)];
  for (const { id } of [long, other]) await collect({ ...at, job: id, out: null, window: 20_000 });
  const waits = await waitsOf(context, () => cancel(at, long.id));
  const [{ queue }] = await status(at, other.id);
  assert.equal(queue.waiting, other.chunks);
  // One by one they are as many as there are chunks.
  assert.ok(waits < 600, `${waits} round trips`);
});

/** How often a command goes to Redis while the answer to none is awaited, as in a series of round trips. */
async function waitsOf(context, work) {
  let [awaited, waits] = [0, 0];
  const { sendCommand } = Redis.prototype;
  const watched = context.mock.method(Redis.prototype, "sendCommand", function (...args) {
    if (awaited++ === 0) waits++;
    const answer = sendCommand.apply(this, args);
    const settled = () => awaited--;
    Promise.resolve(answer).then(settled, settled);
    return answer;
  });
  await work();
  watched.mock.restore();
  return waits;
}

test("a job that was deleted and is submitted again is another one", skipped("database"), async (context) => {
  const at = await place(context, "database");
  const events = [];
  const worker = await work({ ...at, model: answering(), onEvent: ({ what }) => events.push(what) });
  at.before(() => worker.close());
  const store = await openStore(at);
  at.before(() => store.close());
  for (let round = 0; round < 2; round++) {
    const job = await give(at, 60);
    await collect({ ...at, job: job.id, force: round > 0, signal: AbortSignal.timeout(10_000) });
    assert.deepEqual(read(at.out), expected(60));
    assert.deepEqual(events.splice(0), Array(job.chunks).fill("answered"));
    await store.rows("DELETE FROM ternlight.job WHERE id = $1", [job.id]);
  }
});

test("workers do not run far ahead of who collects", redis, async (context) => {
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
  await collect({ ...at, job: job.id, window: 20 });
  assert.deepEqual(read(at.out), expected(8 * 30));
});

test("a queue that is none, or does not answer, is told without its password", async () => {
  await assert.rejects(openQueue("mysql://a:secret@localhost", "x"), { code: "InvalidArgument" });
  const error = await openQueue("redis://user:secret@127.0.0.1:1", "x").catch((error) => error);
  assert.equal(error.code, "Network");
  assert.doesNotMatch(error.message + error.stack, /secret/);
  assert.equal(shownUrl("rediss://user:secret@host:1/2"), "rediss://host:1/2");
  // Such a password ends the host for whoever reads the URL.
  for (const secret of ["12/secret", "12?secret", "12#secret", "12/se?cr#et"]) {
    for (const user of ["user", ""]) assert.equal(shownUrl(`redis://${user}:${secret}@host:1/2`), "the queue's URL");
  }
  assert.equal(shownUrl("postgres://user:12%2Fsecret@host/db?sslmode=require"), "postgres://host/db");
});

test("a database that Redis does not have is refused, and a refused connection told", redis, async (context) => {
  const { queue: url } = await place(context, "redis");
  const queue = await openQueue(`${url}/15`, "x");
  await queue.close();
  await assert.rejects(openQueue(`${url}/99`, "x"), /DB index/);
  await assert.rejects(openQueue("redis://127.0.0.1:1", "x"), /ECONNREFUSED/);
});

test("a queue in Redis needs a folder", async () => {
  await assert.rejects(status({ queue: "redis://127.0.0.1:1" }), {
    code: "InvalidArgument",
    detail: { option: "folder" },
  });
  const error = await status({ queue: "postgres://user:secret@127.0.0.1:1/db" }).catch((error) => error);
  assert.equal(error.code, "Network");
  assert.match(error.message, /^postgres:\/\/127.0.0.1:1\/db: /);
  assert.doesNotMatch(error.message + error.stack, /secret/);
});

for (const kind of ["redis", "postgres"]) {
  test(
    `jobs with a lower number go first, and those without one before all (${kind})`,
    skipped(kind),
    async (context) => {
      const at = await place(context, kind);
      const jobs = [];
      for (const [lines, priority] of [
        [40, 7],
        [41, 2],
        [42, undefined],
      ]) {
        const job = await give(at, lines, priority === undefined ? {} : { priority });
        await collect({ ...at, job: job.id, out: null });
        jobs.push(job.id);
      }
      const order = [];
      const worker = await work({ ...at, model: answering(), chunks: 1, onEvent: ({ job }) => order.push(job) });
      at.before(() => worker.close());
      while (order.length < 5 + 6 + 6) await wait(20);
      const [late, soon, first] = jobs;
      assert.deepEqual(order, [...Array(6).fill(first), ...Array(6).fill(soon), ...Array(5).fill(late)]);
    },
  );

  test(`jobs of several models go side by side, each with its own (${kind})`, skipped(kind), async (context) => {
    const at = await place(context, kind);
    const other = "f".repeat(32);
    const jobs = [await give(at, 60), await give(at, 61), await give(at, 62, { identity: other })];
    const events = [];
    const models = [answering({ ms: 3 }), { ...answering({ ms: 3 }), identity: other }];
    const workers = [];
    for (const model of models) {
      const onEvent = ({ job }) => events.push([model.identity, job]);
      workers.push(await work({ ...at, model, onEvent }));
    }
    at.before(() => Promise.all(workers.map((worker) => worker.close())));
    const outs = jobs.map((_, i) => at.out.replace("out", `out${i}`));
    await Promise.all(jobs.map((job, i) => collect({ ...at, job: job.id, out: outs[i] })));
    for (const [i, lines] of [60, 61, 62].entries()) assert.deepEqual(read(outs[i]), expected(lines));
    for (const [identity, job] of events) assert.equal(identity, job === jobs[2].id ? other : IDENTITY);
    const turns = events.map(([identity]) => identity);
    assert.ok(turns.lastIndexOf(IDENTITY) > turns.indexOf(other) && turns.lastIndexOf(other) > turns.indexOf(IDENTITY));
  });

  test(`entries that nobody of ours has made do nothing (${kind})`, skipped(kind), async (context) => {
    const at = await place(context, kind);
    const { id, chunks } = await give(at, 60);
    const foreign = await give(at, 60, { identity: "f".repeat(32) });
    const queue = await openQueue(at.queue, IDENTITY);
    at.before(() => queue.close());
    const hostile = [
      {},
      { job: "../../x", chunk: 0 },
      { job: { toString: "x" }, chunk: 0 },
      { job: foreign.id, chunk: 0 },
      ...[-1, chunks, 0.5, "0", "../../x", null, 1e300].map((chunk) => ({ job: id, chunk })),
      ...[-1, 8, "/../../../x", null, []].map((line) => ({ job: id, chunk: 0, line })),
    ];
    const opts = (i) => ({ jobId: `hostile-${i}`, attempts: 1000 });
    await queue.addBulk(hostile.map((data, i) => ({ name: "chunk", data, opts: opts(i) })));
    const worker = await work({ ...at, model: answering() });
    at.before(() => worker.close());
    const failed = async () => (await queue.getJobCounts("failed")).failed;
    for (let tries = 0; (await failed()) < hostile.length && tries < 200; tries++) await wait(25);
    assert.equal(await failed(), hostile.length);
    assert.deepEqual((await readdir(path.join(at.folder, id))).sort(), ["index", "job.json", "lines"]);
    assert.deepEqual((await readdir(at.folder)).sort(), [".workers", foreign.id, id].sort());
    await collect({ ...at, job: id });
    assert.deepEqual(read(at.out), expected(60));
    // Long after they are forgotten, also where no further one fails.
    const cleaning = await work({ ...at, model: answering(), dead: 1 });
    at.before(() => cleaning.close());
    for (let tries = 0; (await failed()) > 0 && tries < 200; tries++) await wait(25);
    assert.equal(await failed(), 0);
  });
}

for (const kind of kinds) {
  test(`metrics tell of queues, jobs and workers (${kind})`, skipped(kind), async (context) => {
    const at = await place(context, kind);
    const metrics = await openMetrics(at);
    at.before(() => metrics.close());
    assert.match(await metrics.text(), /^ternlight_batch_queue_up 1$/m);
    const job = await give(at, 100);
    await collect({ ...at, job: job.id, out: null });
    await wait(1100);
    const series = async (works) =>
      Object.fromEntries(
        (await metrics.text(works)).split("\n").map((text) => /^([^#].*) (\S+)$/.exec(text)?.slice(1) ?? []),
      );
    const before = await series();
    const queue = `queue="${IDENTITY}"`;
    const chunks = (state) => `ternlight_batch_queue_chunks{${queue},state="${state}"}`;
    assert.equal(before[chunks("waiting")], "13");
    assert.equal(before[`ternlight_batch_job_chunks{batch_job="${job.id}",model="m",${queue},state="left"}`], "13");
    const age = Number(before[`ternlight_batch_oldest_seconds{${queue}}`]);
    assert.ok(age >= 1 && age < 60, String(age));
    // One entry that no worker can do anything with is dead.
    const opened = await openQueue(at.queue, IDENTITY);
    await opened.addBulk([{ name: "chunk", data: {}, opts: { jobId: "dead" } }]);
    await opened.close();
    const worker = await work({ ...at, model: answering() });
    at.before(() => worker.close());
    await collect({ ...at, job: job.id });
    const works = [{ name: "m", counts: worker.counts }];
    for (let tries = 0; worker.counts.errors === 0 && tries < 100; tries++) await wait(20);
    let after = await series(works);
    // Numbers of a queue may be a second old.
    for (let tries = 0; after[chunks("waiting")] !== "0" && tries < 25; tries++) {
      await wait(200);
      after = await series(works);
    }
    assert.equal(after[chunks("waiting")], "0");
    assert.equal(after[chunks("failed")], "1");
    assert.equal(after['ternlight_batch_jobs{state="done"}'], "1");
    assert.equal(after['ternlight_batch_lines_total{model="m"}'], "100");
    assert.equal(after['ternlight_batch_failed_lines_total{model="m"}'], "2");
    assert.equal(after['ternlight_batch_chunks_total{model="m",what="answered"}'], "13");
    assert.equal(after['ternlight_batch_retries_total{model="m"}'], "0");
    assert.equal(after['ternlight_batch_errors_total{model="m"}'], "1");
    // A worker tells of its queue alone.
    const own = await openMetrics(at, [IDENTITY]);
    at.before(() => own.close());
    const text = await own.text(works);
    assert.match(text, /^ternlight_batch_queue_chunks\{.*state="failed"\} 1$/m);
    assert.doesNotMatch(text, /ternlight_batch_job/);
  });
}

test("a store that takes long is looked at once at a time, and hides nothing of the broker", redis, async (context) => {
  const at = await place(context, "redis");
  const job = await give(at, 100);
  await collect({ ...at, job: job.id, out: null });
  const { done } = JobFolder.prototype;
  context.after(() => {
    JobFolder.prototype.done = done;
  });
  let [looks, now] = [0, 3];
  let gate = Promise.withResolvers();
  JobFolder.prototype.done = async () => {
    looks++;
    await gate.promise;
    return now;
  };
  const metrics = await inSource.openMetrics(at, undefined, 500);
  at.before(() => metrics.close());
  const waiting = /^ternlight_batch_queue_chunks\{.*state="waiting"\} 13$/m;
  const left = (count) => new RegExp(`^ternlight_batch_job_chunks\\{.*state="left"\\} ${count}$`, "m");
  // The first one connects.
  await metrics.text();
  const first = await metrics.text();
  assert.match(first, /^ternlight_batch_queue_up 1$/m);
  assert.match(first, waiting);
  assert.doesNotMatch(first, /^ternlight_batch_job/m);
  assert.equal(looks, 1);
  gate.resolve();
  assert.match(await metrics.text(), left(10));
  // The next look takes long again: what the last one has found is told.
  [gate, now] = [Promise.withResolvers(), 5];
  const before = looks;
  for (let scrape = 0; scrape < 2; scrape++) {
    const text = await metrics.text();
    assert.match(text, left(10));
    assert.match(text, waiting);
  }
  assert.equal(looks, before + 1);
  gate.resolve();
  assert.match(await metrics.text(), left(8));
  // A store that fails tells nothing of jobs.
  JobFolder.prototype.done = () => Promise.reject(new Error("away"));
  const text = await metrics.text();
  assert.match(text, /^ternlight_batch_queue_up 0$/m);
  assert.match(text, waiting);
  assert.doesNotMatch(text, /^ternlight_batch_job/m);
});

test("metrics say that a broker is gone", redis, async (context) => {
  const at = await place(context, "redis");
  const job = await give(at, 10);
  const metrics = await openMetrics({ ...at, queue: "redis://u:secret@127.0.0.1:1" }, [IDENTITY]);
  at.before(() => metrics.close());
  const worker = await work({ ...at, model: answering() });
  at.before(() => worker.close());
  await collect({ ...at, job: job.id });
  const text = await metrics.text([{ name: "m", counts: worker.counts }]);
  assert.match(text, /^ternlight_batch_queue_up 0$/m);
  assert.match(text, /^ternlight_batch_lines_total\{model="m"\} 10$/m);
  assert.doesNotMatch(text, /secret/);
});

test("a chunk whose lines are too large together is refused when it is given", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-jobs-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const text = "x".repeat(15 * 2 ** 20);
  const large = (async function* () {
    for (let index = 0; index < 20; index++) yield [{ ...line(index), text }];
  })();
  const given = submit({ queue: "redis://x", folder, rows: large, identity: IDENTITY, model: "m" });
  await assert.rejects(given, {
    code: "InvalidArgument",
    detail: { option: "chunk", expected: "at most 268435456 characters" },
  });
  assert.deepEqual(await readdir(folder), []);
});
