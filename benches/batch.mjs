/**
 * What batches cost beside the engine, and how they scale:
 *
 *     node benches/batch.mjs overhead    the command's own path against the engine alone, by turns, in chunks of 32 lines
 *     node benches/batch.mjs workers     1, 2, 4 and 8 workers on a queue, with a model that is simulated by its time
 *     node benches/batch.mjs million     a million lines into a queue, and what they take there; LINES=1000000
 *
 * `make build` comes first; `workers` and `million` start a redis-server of their own.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const file = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const seconds = (from) => (performance.now() - from) / 1000;
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

async function overhead() {
  const { load } = await import("../pkg/dist/node.js");
  const { openAnswerer } = await import("../pkg/src/batch/answerer.ts");
  const { Output } = await import("../pkg/src/batch/output.ts");
  const { runBatch } = await import("../pkg/src/batch/run.ts");
  const demo = new URL("../pkg/models/ternlight-demo/", import.meta.url);
  const [LINES, CHUNK, TOKENS] = [128, 32, 24];
  const settings = { threads: 1, maxSequences: CHUNK, maxWaiting: 4096 };
  const model = await load(demo, settings);
  const answerer = await openAnswerer(() => load(demo, settings), { name: "demo", defaultMaxTokens: 128, version: "0" });
  const prompt = (i) => `The story of number ${i} is`;
  const alone = async () => {
    let next = 0;
    const lane = async () => {
      while (next < LINES) {
        const i = next++;
        await model.generate(prompt(i), { maxTokens: TOKENS, seed: i, ignoreEos: true }).finished;
      }
    };
    await Promise.all(Array.from({ length: CHUNK }, lane));
  };
  const batch = async () => {
    const folder = mkdtempSync(path.join(tmpdir(), "ternlight-bench-"));
    const places = { out: path.join(folder, "out"), errors: path.join(folder, "errors"), always: false };
    const output = await Output.open(places, "bench", null);
    const line = (index) => ({ index, text: JSON.stringify({ prompt: prompt(index), max_tokens: TOKENS, ignore_eos: true }) });
    const rows = (async function* () {
      yield Array.from({ length: LINES }, (_, index) => line(index));
    })();
    await runBatch({ rows, workers: [answerer.lines], chunk: CHUNK, output, signal: new AbortController().signal });
    const finishing = performance.now();
    await output.finish();
    // The disk's part, which does not grow with the lines.
    found.finish.push(seconds(finishing));
    rmSync(folder, { recursive: true });
  };
  const timed = () => Object.assign([], { cpu: [] });
  const found = { alone: timed(), batch: timed(), finish: [] };
  for (let turn = 0; turn < 7; turn++) {
    for (const [name, run] of Object.entries({ alone, batch })) {
      const begun = performance.now();
      const cpu = process.cpuUsage();
      await run();
      const { user, system } = process.cpuUsage(cpu);
      // What processors have done says more than the clock where they are shared with others.
      if (turn > 0) found[name].cpu.push((user + system) / 1e6);
      if (turn > 0) found[name].push(seconds(begun) - (name === "batch" ? found.finish.at(-1) : 0));
    }
  }
  const least = (name) => Math.min(...found[name]);
  const report = (name) => {
    const { cpu = [] } = found[name];
    return { least: least(name), median: median(found[name]), cpu: median(cpu) };
  };
  await model.close();
  await answerer.close();
  return { lines: LINES, tokens: TOKENS, alone: report("alone"), batch: report("batch"), finish: report("finish"), overhead: least("batch") / least("alone") - 1, cpu: median(found.batch.cpu) / median(found.alone.cpu) - 1 };
}

/** Runs a job on simulated workers. @param ms of a line: those of a chunk take up to three times that, at once */
async function onQueue({ workers, lines, ms }) {
  const { broker } = await import("../clients/batch/test/support/brokers.mjs");
  const { collect, submit } = await import("../clients/batch/dist/index.js");
  const { IDENTITY, rows } = await import("../clients/batch/test/support/lines.mjs");
  const folder = mkdtempSync(path.join(tmpdir(), "ternlight-bench-"));
  const queue = await broker("redis");
  const place = { queue: queue.url, folder };
  const children = [];
  try {
    const begun = performance.now();
    const job = await submit({ folder, rows: rows(lines), identity: IDENTITY, model: "m" });
    const submitted = seconds(begun);
    const empty = await queue.memory();
    const adding = performance.now();
    if (workers === 0) {
      await collect({ ...place, job: job.id, out: null });
      const added = seconds(adding);
      const brokerBytes = (await queue.memory()) - empty;
      return { lines, chunks: job.chunks, submitted, added, brokerBytes, rss: process.memoryUsage.rss() };
    }
    const settings = JSON.stringify({ ...place, ms, chunks: 1, lease: 30 });
    for (let i = 0; i < workers; i++) {
      children.push(spawn(process.execPath, [file("clients/batch/test/support/worker.mjs"), settings], { stdio: ["ignore", "pipe", "ignore"] }));
    }
    // From the first answer on: programs take their time to start.
    await new Promise((resolve) => setTimeout(resolve, 4000));
    const start = performance.now();
    const found = await collect({ ...place, job: job.id, out: path.join(folder, "out.jsonl") });
    return { ...found, chunks: job.chunks, collected: seconds(start) };
  } finally {
    for (const child of children) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    await queue.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function workers() {
  const table = [];
  const [CHUNKS, CHUNK, MS] = [16, 32, 400];
  for (const count of [1, 2, 4, 8]) {
    const { collected, chunks } = await onQueue({ workers: count, lines: CHUNKS * CHUNK * count, ms: MS });
    const model = (3 * MS * chunks) / 1000;
    table.push({ workers: count, seconds: collected, model, efficiency: model / count / collected });
  }
  return table;
}

const million = () => onQueue({ workers: 0, lines: Number(process.env.LINES ?? 1_000_000), ms: 0 });

const measured = { overhead, workers, million }[process.argv[2]];
if (!measured) throw new Error("overhead, workers or million");
console.log(JSON.stringify(await measured(), null, 2));
process.exit();
