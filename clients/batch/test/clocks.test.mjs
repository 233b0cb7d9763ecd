/** Leases: workers whose clocks are apart, and answers that come when the lease is another's. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { collect, status, submit, work } from "@ternlight/batch";
import { broker, missing } from "./support/brokers.mjs";
import { answering, expected, IDENTITY, rows } from "./support/lines.mjs";

const skipped = (kind) => (missing(kind) ? { skip: `${missing(kind)} is not installed` } : {});
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const HOURS = 7_200_000;

async function place(context, kind) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-clocks-"));
  const queue = await broker(kind);
  const ends = [];
  context.after(async () => {
    for (const end of ends) await end();
    await queue.end();
    await rm(folder, { recursive: true, force: true });
  });
  const at = { queue: queue.url, ...(kind === "database" ? {} : { folder: path.join(folder, "jobs") }) };
  const before = (end) => ends.push(end);
  /** A worker in a process of its own. */
  const worker = (settings) => {
    const script = fileURLToPath(new URL("support/worker.mjs", import.meta.url));
    const child = spawn(process.execPath, [script, JSON.stringify({ ...at, ...settings })], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    const made = { child, events: [], exit: once(child, "exit") };
    let text = "";
    child.stdout.on("data", (part) => {
      const parts = (text + part).split("\n");
      text = parts.pop();
      made.events.push(...parts.map((one) => JSON.parse(one)));
    });
    before(async () => {
      child.kill("SIGKILL");
      await made.exit;
    });
    return made;
  };
  return { at, worker, before, folder, file: (name) => path.join(folder, name) };
}

const give = (at, lines) => submit({ ...at, rows: rows(lines), identity: IDENTITY, model: "m", chunk: 8 });

async function until(holds, what) {
  const begun = performance.now();
  while (!(await holds())) {
    if (performance.now() - begun > 20_000) throw new Error(`not within 20 s: ${what}`);
    await wait(20);
  }
}

for (const kind of ["redis", "postgres"]) {
  for (const clock of kind === "redis" ? [HOURS] : [HOURS, -HOURS]) {
    const name = `chunks of a worker that died are taken over, with a clock ${(clock / HOURS) * 2} hours off (${kind})`;
    test(name, skipped(kind), async (context) => {
      const { at, worker, before, file } = await place(context, kind);
      const job = await give(at, 24);
      const out = file("out.jsonl");
      const collecting = collect({ ...at, job: job.id, out, signal: AbortSignal.timeout(20_000) });
      collecting.catch(() => {});
      const wrong = worker({ clock, ms: 100_000, lease: 1 });
      await until(async () => (await status(at, job.id))[0].queue.active === 2, "two chunks begun");
      // Its own look for stalled chunks is done, too.
      await wait(1500);
      wrong.child.kill("SIGKILL");
      const right = await work({ ...at, model: answering(), lease: 1 });
      before(() => right.close());
      await collecting;
      assert.equal(readFileSync(out, "utf8"), expected(24).out);
    });
  }

  test(`workers whose clocks are apart leave each other's chunks alone (${kind})`, skipped(kind), async (context) => {
    const { at, worker, file } = await place(context, kind);
    const job = await give(at, 48);
    // Each chunk takes longer than two leases, which are long enough for a busy machine to renew them.
    const workers = [-HOURS, 0, HOURS].map((clock) => worker({ clock, ms: 3000, lease: 4 }));
    const out = file("out.jsonl");
    await collect({ ...at, job: job.id, out });
    const events = () => workers.flatMap(({ events }) => events);
    await until(() => events().length >= 6, "all events");
    // By clocks that are apart, nearly all chunks would begin again; a busy machine may renew one too late.
    const again = events().filter(({ what, retries }) => what !== "answered" || retries > 0);
    assert.ok(again.length <= 2, JSON.stringify(events()));
    assert.equal(readFileSync(out, "utf8"), expected(48).out);
  });
}

for (const kind of ["redis", "database"]) {
  for (const first of ["late", "other"]) {
    const name = `of a chunk whose lease was lost the first answers are kept, those of the ${first} worker (${kind})`;
    test(name, skipped(kind), async (context) => {
      const { at, worker, before, file } = await place(context, kind);
      const job = await give(at, 8);
      const late = worker({ by: "late", ms: 2000, lease: 1 });
      const out = file("out.jsonl");
      await collect({ ...at, job: job.id, out: null });
      await until(async () => (await status(at, job.id))[0].queue.active === 1, "the chunk begun");
      // It has looked whether there are answers, and computes some.
      await wait(1000);
      late.child.kill("SIGSTOP");

      const { promise: gate, resolve: open } = Promise.withResolvers();
      const events = [];
      let taken = false;
      const { lines } = answering({ by: "other" });
      const answer = async (line) => {
        taken = true;
        await gate;
        return lines.answer(line);
      };
      const model = { identity: IDENTITY, lines: { ...lines, answer } };
      const other = await work({ ...at, model, lease: 1, onEvent: (event) => events.push(event) });
      before(() => other.close());
      before(open);
      await until(() => taken, "taken over");
      const ends = {
        late: async () => {
          late.child.kill("SIGCONT");
          await until(() => late.events.length > 0, "the late answers");
        },
        other: async () => {
          open();
          await until(() => events.length > 0, "the other's answers");
        },
      };
      const { [first]: now, ...rest } = ends;
      await now();
      assert.deepEqual(await collect({ ...at, job: job.id, out }), { lines: 8, failed: 0, total: 8 });
      const answers = readFileSync(out, "utf8");
      assert.deepEqual(
        answers
          .trimEnd()
          .split("\n")
          .map((text) => JSON.parse(text))
          .map(({ custom_id, by }) => [custom_id, by]),
        Array.from({ length: 8 }, (_, i) => [`line-${i + 1}`, first]),
      );

      // Whoever comes second has computed it for nothing.
      await Object.values(rest)[0]();
      assert.deepEqual([...late.events, ...events].map(({ what }) => what).sort(), ["answered", "answered"]);
      await collect({ ...at, job: job.id, out: file("again.jsonl") });
      assert.equal(readFileSync(file("again.jsonl"), "utf8"), answers);
      const left = async () => (await status(at, job.id))[0];
      await until(async () => (await left()).queue.active === 0, "the queue is empty");
      const { state, queue } = await left();
      assert.deepEqual([state, queue.waiting], ["done", 0]);
      if (at.folder) assert.deepEqual(await readdir(path.join(at.folder, job.id, "answers", "000000")), ["0"]);
    });
  }
}
