/**
 * What batches cost beside the engine, and how they scale:
 *
 *     node benches/batch.mjs overhead    the command's own path against the engine alone, by turns, in chunks of 32 lines; TURNS=5 LINES=1024
 *     node benches/batch.mjs beside      two workers of one thread beside one of two, in one process and on a queue, by turns; TURNS=5 LINES=1024
 *     node benches/batch.mjs workers     1, 2, 4 and 8 workers on a queue, with a model that is simulated by its time; CHUNKS=64 for each
 *     node benches/batch.mjs million     a million lines into a queue and out of it, in a heap of 64 MB, and what they take in the broker; LINES=1000000
 *
 * `make build` comes first; Node is 24 or newer (pkg/test/hosts/node_modules/node24/bin/node). All but `overhead` start brokers of their
 * own, from Debian's packages; BROKERS=redis,database names which ("postgres" has its answers in a folder, "database" in its tables).
 * Writes results/DATE-batch-MODE.json.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { cpus, loadavg, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { median } from "./median.mjs";

const here = fileURLToPath(import.meta.url);
const file = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const demo = new URL("../pkg/models/ternlight-demo/", import.meta.url);
const seconds = (from) => (performance.now() - from) / 1000;
const temporary = () => mkdtempSync(path.join(tmpdir(), "ternlight-bench-"));

/** As the command has it: beside a chunk some lines wait in the engine's queue. */
const [CHUNK, AHEAD, TOKENS] = [32, 8, 24];
const prompt = (i) => `The story of number ${i} is`;
const request = (i) => JSON.stringify({ prompt: prompt(i), max_tokens: TOKENS, ignore_eos: true, seed: i });
/** @param from the number of the first: lines with other numbers are another job */
async function* rowsFrom(from, lines) {
  yield Array.from({ length: lines }, (_, index) => ({ index, text: request(from + index) }));
}

const settings = (threads) => ({ threads, maxSequences: CHUNK, maxWaiting: 4096 });
async function answererOf(threads) {
  const { load } = await import("../pkg/dist/node.js");
  const { openAnswerer } = await import("../pkg/src/batch/answerer.ts");
  return openAnswerer(() => load(demo, settings(threads)), { name: "demo", defaultMaxTokens: 128, version: "0" });
}

/** Works through lines as the command does. @returns seconds to the last answer, and those that the disk then takes, which do not grow with the lines */
async function timed(answerers, lines) {
  const { Output } = await import("../pkg/src/batch/output.ts");
  const { runBatch } = await import("../pkg/src/batch/run.ts");
  const folder = temporary();
  const places = { out: path.join(folder, "out"), errors: path.join(folder, "errors"), always: false };
  const output = await Output.open(places, "bench", null, true);
  const workers = answerers.map((one) => one.lines);
  const begun = performance.now();
  await runBatch({ rows: rowsFrom(0, lines), workers, chunk: CHUNK, ahead: AHEAD, output, signal: new AbortController().signal });
  const answered = seconds(begun);
  await output.finish();
  rmSync(folder, { recursive: true });
  return { answered, finish: seconds(begun) - answered };
}

async function overhead() {
  const { load } = await import("../pkg/dist/node.js");
  const LINES = Number(process.env.LINES ?? 1024);
  const model = await load(demo, settings(1));
  const answerer = await answererOf(1);
  const alone = async () => {
    const begun = performance.now();
    let next = 0;
    const lane = async () => {
      while (next < LINES) {
        const i = next++;
        await model.generate(prompt(i), { maxTokens: TOKENS, seed: i, ignoreEos: true }).finished;
      }
    };
    await Promise.all(Array.from({ length: CHUNK + AHEAD }, lane));
    return { answered: seconds(begun) };
  };
  const batch = () => timed([answerer], LINES);
  const found = { alone: [], batch: [] };
  for (let turn = 0; turn <= Number(process.env.TURNS ?? 5); turn++) {
    for (const [name, once] of Object.entries({ alone, batch })) {
      const before = process.cpuUsage();
      const times = await once();
      const { user, system } = process.cpuUsage(before);
      // The first turn warms up. What processors have done says more than the clock where they are shared with others.
      if (turn > 0) found[name].push({ ...times, cpu: (user + system) / 1e6 });
    }
  }
  await model.close();
  await answerer.close();
  const ratio = (value) => median(found.batch.map((one, i) => one[value] / found.alone[i][value]));
  return { lines: LINES, tokens: TOKENS, chunk: CHUNK, ...found, overhead: ratio("answered") - 1, cpu: ratio("cpu") - 1 };
}

/** The same lines by one worker with two threads and by two with one each, of the demo model. */
async function beside() {
  const [LINES, turns] = [Number(process.env.LINES ?? 1024), Number(process.env.TURNS ?? 5)];
  const found = { command: { one: [], two: [] }, queue: { one: [], two: [] } };
  const [whole, ...halves] = await Promise.all([2, 1, 1].map(answererOf));
  for (let turn = 0; turn <= turns; turn++) {
    for (const [name, answerers] of Object.entries({ one: [whole], two: halves })) {
      const { answered } = await timed(answerers, LINES);
      if (turn > 0) found.command[name].push(LINES / answered);
    }
  }
  for (const answerer of [whole, ...halves]) await answerer.close();
  await withPlace("redis", async ({ place }) => {
    const { collect, submit } = await import("../clients/batch/dist/index.js");
    for (let turn = 0; turn <= turns; turn++) {
      for (const [name, threads] of Object.entries({ one: [2], two: [1, 1] })) {
        await withChildren(threads.map((count) => commandWorker(place, count)), async ([{ identity, model }]) => {
          const from = LINES * (2 * turn + threads.length);
          const job = await submit({ ...place, rows: rowsFrom(from, LINES), identity, model, chunk: CHUNK });
          const begun = performance.now();
          await collect({ ...place, job: job.id, out: path.join(place.folder, "out.jsonl") });
          if (turn > 0) found.queue[name].push(LINES / seconds(begun));
        });
      }
    }
  });
  const ratio = ({ one, two }) => median(two.map((rate, i) => rate / one[i]));
  return { lines: LINES, tokens: TOKENS, linesPerSecond: found, command: ratio(found.command), queue: ratio(found.queue) };
}

/** A place for jobs, with a broker of its own. */
async function withPlace(kind, use) {
  const { broker } = await import("../clients/batch/test/support/brokers.mjs");
  const folder = temporary();
  const queue = await broker(kind);
  try {
    return await use({ queue, folder, place: { queue: queue.url, ...(kind === "database" ? {} : { folder }) } });
  } finally {
    await queue.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @param starting what gives `{child, …}` once a program is ready */
async function withChildren(starting, use) {
  const children = await Promise.all(starting);
  try {
    return await use(children);
  } finally {
    for (const { child } of children) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  }
}

async function commandWorker({ queue, folder }, threads) {
  const flags = ["--queue", queue, "--folder", folder, "--model", `demo=${fileURLToPath(demo)}`, "--threads", String(threads), "--json"];
  const child = spawn(process.execPath, [file("pkg/dist/cli.js"), "batch", "worker", ...flags], { stdio: ["ignore", "pipe", "ignore"] });
  const [said] = await once(child.stdout, "data");
  const [{ identity, name: model }] = JSON.parse(said).models;
  return { child, identity, model };
}

/** Places of a simulated engine. */
const PLACES = 32;

async function simulatedWorker(place, settings) {
  const script = file("clients/batch/test/support/worker.mjs");
  const options = JSON.stringify({ ...place, lease: 30, places: PLACES, ...settings, ready: true });
  const child = spawn(process.execPath, [script, options], { stdio: ["ignore", "pipe", "ignore"] });
  await once(child.stdout, "data");
  child.stdout.resume();
  return { child };
}

const brokers = (names) => (process.env.BROKERS ?? names).split(",");

/** Workers whose engine has places for 32 lines, of which each takes 300, 600 or 900 ms. */
async function workers() {
  const [CHUNKS, MS] = [Number(process.env.CHUNKS ?? 64), 300];
  const { collect, submit } = await import("../clients/batch/dist/index.js");
  const { IDENTITY, rows } = await import("../clients/batch/test/support/lines.mjs");
  const table = [];
  for (const kind of brokers("redis,database")) {
    for (const count of [1, 2, 4, 8]) {
      const lines = CHUNKS * CHUNK * count;
      const collected = await withPlace(kind, async ({ place, folder }) => {
        const job = await submit({ ...place, rows: rows(lines), identity: IDENTITY, model: "m", chunk: CHUNK });
        const starting = Array.from({ length: count }, () => simulatedWorker(place, { ms: MS }));
        return withChildren(starting, async () => {
          const begun = performance.now();
          await collect({ ...place, job: job.id, out: path.join(folder, "out.jsonl") });
          return seconds(begun);
        });
      });
      // A line takes twice the time in the mean.
      const model = (2 * MS * lines) / PLACES / 1000;
      table.push({ broker: kind, workers: count, lines, seconds: collected, model, efficiency: model / count / collected });
    }
  }
  return { ms: MS, places: PLACES, chunk: CHUNK, table };
}

/** Bytes of heap of the process that submits and collects. */
const HEAP_MB = 64;

async function million() {
  const lines = Number(process.env.LINES ?? 1_000_000);
  const table = [];
  for (const kind of brokers("redis,postgres,database")) {
    table.push(
      await withPlace(kind, async ({ queue, place, folder }) => {
        const part = (what, more = {}) => inSmallHeap({ ...place, what, lines, ...more });
        const before = await queue.memory();
        const submitted = await part("submit");
        const job = submitted.job.id;
        const empty = await queue.memory();
        const added = await part("add", { job });
        const brokerBytes = (await queue.memory()) - empty;
        const collected = await withChildren([simulatedWorker(place, { ms: 0 }), simulatedWorker(place, { ms: 0 })], () =>
          part("collect", { job, out: path.join(folder, "out.jsonl") }),
        );
        const keptBytes = (await queue.memory()) - before;
        return { broker: kind, lines, chunks: submitted.job.chunks, submitted, added, collected, brokerBytes, keptBytes };
      }),
    );
  }
  return { heapMb: HEAP_MB, chunk: CHUNK, table };
}

/** One part in a process of its own, with its time and the most memory that it had. */
async function inSmallHeap(options) {
  const args = [`--max-old-space-size=${HEAP_MB}`, here, "part", JSON.stringify(options)];
  return JSON.parse((await promisify(execFile)(process.execPath, args)).stdout);
}

async function part({ what, lines, job, out = null, ...place }) {
  const { collect, submit } = await import("../clients/batch/dist/index.js");
  const { IDENTITY, rows } = await import("../clients/batch/test/support/lines.mjs");
  const begun = performance.now();
  const found =
    what === "submit"
      ? { job: await submit({ ...place, rows: rows(lines), identity: IDENTITY, model: "m", chunk: CHUNK }) }
      : await collect({ ...place, job, out });
  return { ...found, seconds: seconds(begun), peakRss: 1024 * process.resourceUsage().maxRSS };
}

const [name, options] = process.argv.slice(2);
if (name === "part") console.log(JSON.stringify(await part(JSON.parse(options))));
else {
  const measured = { overhead, beside, workers, million }[name];
  if (!measured) throw new Error("overhead, beside, workers or million");
  const loadBefore = loadavg()[0];
  const result = await measured();
  const date = new Date().toISOString();
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore, loadAfter: loadavg()[0] };
  const report = `${JSON.stringify({ date, machine, result }, null, 2)}\n`;
  process.stdout.write(report);
  await writeFile(new URL(`results/${date.slice(0, 10)}-batch-${name}.json`, import.meta.url), report);
}
process.exit();
