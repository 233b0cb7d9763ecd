/** Collecting: two who write one file, brokers that are away meanwhile, clocks that were wrong. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { collect, status, submit, work } from "@ternlight/batch";
import { EngineError } from "ternlight/batch";
import { Patience } from "../src/adder.ts";
import { Files } from "../src/files.ts";
import { openStore } from "../src/open_store.ts";
import { broker, missing } from "./support/brokers.mjs";
import { fill, mountSmall } from "./support/disks.mjs";
import { answering, expected, IDENTITY, rows } from "./support/lines.mjs";

const skipped = (kind) => (missing(kind) ? { skip: `${missing(kind)} is not installed` } : {});
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function place(context, kind) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-collect-"));
  const queue = await broker(kind);
  const ends = [];
  context.after(async () => {
    for (const end of ends) await end();
    await queue.end();
    await rm(folder, { recursive: true, force: true });
  });
  const at = { queue: queue.url, ...(kind === "database" ? {} : { folder: path.join(folder, "jobs") }) };
  return { at, queue, out: path.join(folder, "out.jsonl"), folder, before: (end) => ends.push(end) };
}

const give = (at, lines, chunk = 1) => submit({ ...at, rows: rows(lines), identity: IDENTITY, model: "m", chunk });

/** Keeps the answers to chunks of one line as a worker would. */
async function keepAnswers(at, { id }, from, end) {
  const store = await openStore(at);
  const job = await store.open(id);
  const { lines } = answering();
  for (let chunk = from; chunk < end; chunk++) {
    await job.keep([await lines.answer((await job.lines(chunk))[0])], chunk);
  }
  await store.close();
}

const answer = (text) => ({ text, failed: false });

test("two machines that write one file write a whole one each", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-collect-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const out = path.join(folder, "out.jsonl");
  const machine = (name) => ({ name, lock: async () => ({ release() {} }) });
  const first = await Files.open(out, undefined, machine("a"));
  await first.write([answer("1"), answer("2")]);
  const dying = await Files.open(out, undefined, machine("b"));
  const slow = await Files.open(out, undefined, machine("c"));
  for (const files of [dying, slow]) await files.write([answer("1")]);
  await dying.close();
  await first.write([answer("3")]);
  await first.finish(false);
  await first.close();
  assert.equal(readFileSync(out, "utf8"), "1\n2\n3\n");
  await slow.write([answer("2")]);
  assert.equal(readFileSync(out, "utf8"), "1\n2\n3\n");
  await slow.write([answer("3"), { text: "4", failed: true }]);
  await slow.finish(true);
  await slow.close();
  assert.equal(readFileSync(out, "utf8"), "1\n2\n3\n");
  assert.deepEqual((await readdir(folder)).sort(), ["out.errors.jsonl", "out.jsonl"]);
});

test("parts of a collector that was killed go away, and those of other machines stay", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-collect-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const out = path.join(folder, "out.jsonl");
  const killed = await Files.open(out, undefined, { name: "a", lock: async () => ({ release() {} }) });
  const other = await Files.open(out, undefined, { name: "b", lock: async () => ({ release() {} }) });
  await writeFile(`${out}.part`, "somebody's own");
  assert.equal((await readdir(folder)).length, 5);
  // Where no lock says that nobody else is there, nothing is taken away.
  const unlocked = await Files.open(out, undefined, { name: "a", lock: async () => null });
  assert.equal((await readdir(folder)).length, 7);
  await unlocked.close();
  const next = await Files.open(out, undefined, { name: "a", lock: async () => ({ release() {} }) });
  await assert.rejects(killed.finish(false), { code: "Unwritable" });
  await killed.close();
  await next.close();
  await other.finish(false);
  await other.close();
  assert.deepEqual((await readdir(folder)).sort(), ["out.jsonl", "out.jsonl.part"]);
});

test("one machine collects a file once at a time", skipped("redis"), async (context) => {
  const { at, out, folder } = await place(context, "redis");
  const job = await give(at, 20);
  await keepAnswers(at, job, 0, 19);
  const first = collect({ ...at, job: job.id, out });
  while (!(await readdir(folder)).some((name) => name.endsWith(".part"))) await wait(10);
  const second = collect({ ...at, job: job.id, out });
  await assert.rejects(second, { code: "Unwritable", message: `${out} is being written by another run` });
  await keepAnswers(at, job, 19, 20);
  await first;
  assert.equal(readFileSync(out, "utf8"), expected(20).out);
  assert.deepEqual((await readdir(folder)).sort(), ["jobs", "out.jsonl"]);
});

test("no two collectors write one file, whatever it is to each of them", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-collect-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const at = (name) => path.join(folder, name);
  const first = await Files.open(at("a"), { errors: at("errors") });
  for (const [out, errors, held] of [
    ["b", "errors", "errors"],
    ["b", "a", "a"],
    ["errors", "b", "errors"],
  ]) {
    const message = `${at(held)} is being written by another run`;
    await assert.rejects(Files.open(at(out), { errors: at(errors) }), { code: "Unwritable", message });
  }
  await assert.rejects(Files.open(at("b"), { errors: `${folder}/./b` }), { code: "InvalidArgument" });
  await (await Files.open(at("b"))).close();
  await first.close();
  assert.deepEqual(await readdir(folder), []);
});

test("files with other answers are replaced by force alone", skipped("redis"), async (context) => {
  const { at, out, folder } = await place(context, "redis");
  const job = await give(at, 3);
  const [mine, errors] = ["mine\n", path.join(folder, "out.errors.jsonl")];
  const again = (more = {}) => collect({ ...at, job: job.id, out, ...more });
  const refused = async (file, more) => {
    await writeFile(file, mine);
    const message = `${file} exists, and is not what the job gives; --force replaces it`;
    await assert.rejects(again(more), { code: "Exists", message });
    assert.equal(readFileSync(file, "utf8"), mine);
  };
  // A job without all of its answers is not waited for.
  await refused(out);
  await keepAnswers(at, job, 0, 3);
  await refused(out);
  await again({ force: true });
  await refused(errors);
  await refused(errors, { errors });
  await again({ force: true });
  // What it has written before is its own.
  await again();
  assert.equal(readFileSync(out, "utf8"), expected(3).out);
  assert.deepEqual((await readdir(folder)).sort(), ["jobs", "out.jsonl"]);
});

for (const kind of ["postgres", "database"]) {
  test(`a job that could not be collected is not submitted (${kind})`, skipped(kind), async (context) => {
    const { at, out, folder } = await place(context, kind);
    const errors = path.join(folder, "errors.jsonl");
    const given = (more) => submit({ ...at, rows: rows(3), identity: IDENTITY, model: "m", chunk: 1, out, ...more });
    for (const [file, more] of [
      [out, {}],
      [errors, { errors }],
    ]) {
      await writeFile(file, "mine\n");
      await assert.rejects(given(more), { code: "Exists", message: new RegExp(`^${file} exists, and is not`) });
      assert.deepEqual(await status(at), [], "nothing was submitted");
      await rm(file);
    }
    await writeFile(out, "mine\n");
    const job = await given({ force: true });
    await assert.rejects(given({}), { code: "Exists" }, "a job that is there and not done");
    await keepAnswers(at, job, 0, 3);
    // Whether it is the same is found when it is collected.
    assert.equal((await given({})).id, job.id);
    assert.deepEqual(
      (await status(at)).map(({ state }) => state),
      ["done"],
    );
  });
}

test("what is away is told once, tried again, and ends who waits for too long", async () => {
  const told = [];
  const patience = new Patience(0.1, (error) => told.push(error));
  const away = new EngineError("Network", "away");
  for (const other of [new Error("a bug"), new EngineError("NotFound", "gone")]) {
    assert.throws(() => patience.failed(other), other);
  }
  patience.failed(away);
  patience.failed(away);
  assert.deepEqual([told, patience.resting], [[away], true]);
  await wait(120);
  patience.well();
  patience.failed(away);
  assert.deepEqual(told, [away, away]);
  await wait(120);
  assert.throws(() => patience.failed(away), away);
  // A network folder comes back, too.
  const stale = new EngineError("Unreadable", "/jobs/0: ESTALE: stale file handle");
  patience.well();
  patience.failed(stale);
  assert.deepEqual(told, [away, away, stale]);
});

test(
  "a full disk ends who collects with the file's name, and the same call goes on",
  skipped("redis"),
  async (context) => {
    const { at, folder, before } = await place(context, "redis");
    const small = path.join(folder, "small");
    await mkdir(small);
    const unmount = mountSmall(small, 1);
    if (!unmount) return context.skip("a small file system cannot be mounted here: mount needs root");
    before(unmount);
    const lines = 40;
    const job = await give(at, lines);
    await keepAnswers(at, job, 0, lines);
    const room = await fill(small);
    const out = path.join(small, "out.jsonl");
    const full = { code: "Unwritable", message: /out\.jsonl cannot be written: ENOSPC/ };
    await assert.rejects(collect({ ...at, job: job.id, out }), full);
    await room();
    assert.deepEqual(await collect({ ...at, job: job.id, out }), { lines, failed: 0, total: lines });
    assert.equal(readFileSync(out, "utf8"), expected(lines).out);
    assert.deepEqual(await readdir(small), ["out.jsonl"]);
  },
);

for (const kind of ["redis", "postgres"]) {
  test(`a broker that is away while chunks are added is waited for (${kind})`, skipped(kind), async (context) => {
    const { at, queue, out, before } = await place(context, kind);
    const lines = 60;
    const job = await give(at, lines);
    await keepAnswers(at, job, 1, 10);
    let seen = 0;
    const told = [];
    // Behind the first 50 chunks lie some that are not in the queue yet.
    const collecting = collect({
      ...at,
      job: job.id,
      out,
      window: 50,
      onProgress: ({ lines }) => (seen = lines),
      onError: (error) => told.push(error),
    });
    const rest = { ...at, job: job.id, window: 50 };
    const impatient = kind === "postgres" ? collect({ ...rest, out: `${out}2`, patience: 0.5 }) : null;
    for (const one of [collecting, impatient]) one?.catch(() => {});
    while ((await status(at, job.id))[0].queue.waiting < 41) await wait(20);
    await queue.kill();
    await keepAnswers(at, job, 0, 1);
    while (seen < 10) await wait(10);
    await Promise.race([collecting, wait(500)]);
    if (impatient) {
      const error = await impatient.then(
        () => null,
        (error) => error,
      );
      assert.equal(error?.code, "Network");
      assert.match(error.message, /^postgres:\/\/127\.0\.0\.1:\d+\/postgres takes no chunks: ./);
    }
    await queue.start();
    const worker = await work({ ...at, model: answering() });
    before(() => worker.close());
    assert.deepEqual(await collecting, { lines, failed: 1, total: lines });
    assert.equal(readFileSync(out, "utf8"), expected(lines).out);
    if (kind === "postgres")
      assert.deepEqual(
        told.map(({ code }) => code),
        ["Network"],
      );
  });
}

for (const kind of ["redis", "postgres"]) {
  test(`a chunk that failed while a clock was wrong is tried again (${kind})`, skipped(kind), async (context) => {
    const { at, out, before } = await place(context, kind);
    const job = await give(at, 16, 8);
    const now = Date.now;
    let offset = 7_200_000;
    Date.now = () => now() + offset;
    context.after(() => {
      Date.now = now;
    });
    const failures = [];
    const { identity, lines } = answering();
    const failing = {
      ...lines,
      async answer(line) {
        if (line.index > 0 || failures.length > 0) return lines.answer(line);
        throw new Error("the folder is away");
      },
    };
    const model = { identity, lines: failing };
    const worker = await work({ ...at, model, lease: 2, chunks: 1, onError: (error) => failures.push(error.message) });
    before(() => worker.close());
    const collecting = collect({ ...at, job: job.id, out });
    while (failures.length === 0) await wait(20);
    offset = 0;
    const late = wait(10_000).then(() => Promise.reject(new Error("not collected 10 s after the clock was right")));
    await Promise.race([collecting, late]);
    assert.deepEqual(failures, ["the folder is away"]);
    assert.equal(readFileSync(out, "utf8"), expected(16).out);
  });
}
