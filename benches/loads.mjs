/**
 * How fast models load, beside a bare read of the same bytes in the same run:
 *
 *   node benches/loads.mjs [--shape b2b] [--repeat 3] [--only node|chromium]
 *
 * makes a model file of the shape, serves it on loopback from a process of its own, and loads it in Node and in Chromium: without
 * a cache, into one, and out of it, as it lies and with every chunk hashed again; beside a fetch whose pieces are dropped, and one that
 * keeps them. A load's time ends when `load()` resolves. Then the demo model out of the cache, by phase,
 * up to its first token; and how soon an abort within a prompt of 2,000 tokens settles. Writes results/DATE-loads-WHERE.json.
 * Node 22.18 or newer, a built package and Chromium.
 */
import { fork } from "node:child_process";
import { closeSync, createWriteStream, openSync, readdirSync, readSync, statSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "../pkg/test/package/support.mjs";
import { serve } from "../scripts/serve.mjs";

/** Runs in a page and in Node alike: what one source takes, in milliseconds, and more that is known of it. */
async function measure({ library, url, small, repeat, hashes }) {
  const { load, cache } = await import(library);
  // As median.mjs has it, which a page cannot import here.
  const median = (runs) => {
    const sorted = runs.toSorted((a, b) => a - b);
    const half = runs.length / 2;
    return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2;
  };
  /** `cores`: how many the whole machine had busy, server included. */
  async function times(count, work) {
    const runs = [];
    let [worked, took] = [0, 0];
    for (let i = 0; i < count; i++) {
      // What a run before has left, closed connections among it, is seen to first.
      await new Promise((resolve) => setTimeout(resolve, 100));
      const [begun, before] = [performance.now(), await globalThis.busy()];
      runs.push(await work());
      worked += (await globalThis.busy()) - before;
      took += performance.now() - begun;
    }
    const cores = worked / took;
    return { median: median(runs), runs, cores };
  }
  async function clocked(work) {
    const begun = performance.now();
    await work();
    return performance.now() - begun;
  }
  async function bare() {
    const reader = (await fetch(url, { cache: "no-store" })).body.getReader();
    while (!(await reader.read()).done);
  }
  const held = async () => (await fetch(url, { cache: "no-store" })).arrayBuffer();
  const loading = (options) => async () => {
    let model;
    const ms = await clocked(async () => (model = await load(url, { threads: 2, contextLength: 512, ...options })));
    await model.close();
    return ms;
  };
  const result = {};
  result["bare fetch, dropped"] = await times(repeat, () => clocked(bare));
  result["bare fetch, held in an ArrayBuffer"] = await times(repeat, () => clocked(held));
  result["load, not kept"] = await times(repeat, loading({ cache: false }));
  result["load, kept"] = await times(repeat, async () => {
    await cache.delete();
    return loading({})();
  });
  result["load, out of the cache"] = await times(repeat, loading({}));
  result['load, out of the cache, verify: "always"'] = await times(repeat, loading({ verify: "always" }));
  for (const [name, held] of Object.entries({ "into one buffer": false, "into new memory": true })) {
    result[`bare read of the cache's file, ${name}`] = await times(repeat, () => clocked(() => readKept(held)));
  }
  const chunk = new Uint8Array(1 << 20);
  result["hash"] = await times(repeat, () =>
    clocked(async () => {
      for (let i = 0; i < hashes; i++) await crypto.subtle.digest("SHA-256", chunk);
    }),
  );

  // A page that is opened again: what it waits for until the first word.
  await (await load(small, { threads: 2 })).close();
  const firsts = [];
  for (let i = 0; i < 5; i++) {
    performance.clearMeasures();
    const begun = performance.now();
    const model = await load(small, { threads: 2, userTiming: true });
    const loaded = performance.now() - begun;
    for await (const _ of model.generate("Once upon a time", { maxTokens: 1 })) break;
    const first = performance.now() - begun;
    const phases = performance.getEntriesByType("measure").filter((one) => one.startTime < begun + loaded);
    firsts.push({ first, loaded, phases: phases.map((one) => `${one.name} ${one.duration.toFixed(0)}`).join(", ") });
    await model.close();
  }
  const first = firsts.toSorted((a, b) => a.first - b.first)[2];

  // An abort within a long prompt, and whether the model goes on.
  const model = await load(url, { threads: 2, contextLength: 2304 });
  const aborts = [];
  for (const after of [20, 300, 1500, 4000]) {
    const controller = new AbortController();
    const prompt = Array.from({ length: 2000 }, (_, i) => 10 + ((i * 7919 + after) % 4000));
    let end = null;
    const { finished } = model.generate(prompt, { maxTokens: 1, signal: controller.signal });
    const settled = finished.then(
      () => (end = "an answer"),
      (error) => (end = error.name),
    );
    await new Promise((resolve) => setTimeout(resolve, after));
    if (end) throw new Error(`nothing to abort: it ended with ${end}`);
    const ms = await clocked(() => {
      controller.abort();
      return settled;
    });
    if (end !== "AbortError") throw new Error(`the abort ended with ${end}`);
    aborts.push(ms);
  }
  const { tokens } = await model.generate([1, 2, 3], { maxTokens: 2, temperature: 0, ignoreEos: true }).finished;
  await model.close();
  return { result, first, aborts, alive: tokens.length === 2 };
}

/** Of one read. */
const PIECE = 1 << 20;

/** Reads the largest file of the cache a megabyte at a time; new memory costs what a model's memory costs. */
function readKeptInNode(held) {
  const directory = path.join(process.env.XDG_CACHE_HOME, "ternlight");
  const files = readdirSync(directory).map((name) => path.join(directory, name));
  const [file] = files.sort((a, b) => statSync(b).size - statSync(a).size);
  const bytes = new Uint8Array(held ? statSync(file).size : PIECE);
  const handle = openSync(file);
  for (let at = 0, read = 1; read > 0; at += read) {
    const from = held ? at : 0;
    read = readSync(handle, bytes, from, Math.min(PIECE, bytes.length - from), at);
  }
  closeSync(handle);
}

/** The same in a worker, which alone may read so. */
function readKeptInPage(held) {
  const work = async (held, PIECE) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("ternlight");
    let largest = null;
    for await (const handle of folder.values()) {
      const { size } = await handle.getFile();
      if (!largest || size > largest.size) largest = { handle, size };
    }
    const file = await largest.handle.createSyncAccessHandle({ mode: "read-only" });
    const bytes = new Uint8Array(held ? largest.size : PIECE);
    for (let at = 0, read = 1; read > 0; at += read) {
      const from = held ? at : 0;
      read = file.read(bytes.subarray(from, from + PIECE), { at });
    }
    file.close();
    postMessage("done");
  };
  const worker = new Worker(URL.createObjectURL(new Blob([`(${work})(${held}, ${1 << 20})`])));
  return new Promise((resolve, reject) => {
    worker.onmessage = resolve;
    worker.onerror = reject;
  }).finally(() => worker.terminate());
}

/** What all cores have worked since the machine started, in milliseconds. */
const busy = () => cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);

/** Writes a synthetic model. */
async function write(folder, name, options) {
  const { synthetic } = await import("../pkg/src/bench/synthetic.ts");
  const file = synthetic(options);
  await pipeline(file.stream(), createWriteStream(path.join(folder, name)));
  return file.size;
}

async function tell(where, size, found) {
  const file = new URL(`results/${new Date().toISOString().slice(0, 10)}-loads-${where.toLowerCase()}.json`, import.meta.url);
  await writeFile(file, `${JSON.stringify({ size, ...found })}\n`);
  const { result, first, aborts, alive } = found;
  const bares = Object.values(result).slice(0, 2);
  const head = "| | MB/s | ÷ dropped | ÷ held | cores busy | runs, ms |";
  console.log(`\n${where}: ${(size / 1e6).toFixed(0)} MB\n\n${head}\n|---|--:|--:|--:|--:|---|`);
  for (const [name, { median, runs, cores }] of Object.entries(result)) {
    const shown = runs.map((ms) => ms.toFixed(0)).join(", ");
    const ratios = bares.map((bare) => `${((100 * bare.median) / median).toFixed(0)} %`).join(" | ");
    console.log(`| ${name} | ${(size / median / 1000).toFixed(0)} | ${ratios} | ${cores.toFixed(1)} | ${shown} |`);
  }
  const [whole, loaded] = [first.first, first.loaded].map((ms) => ms.toFixed(0));
  console.log(`\nfirst token of the cached demo model: ${whole} ms, loaded after ${loaded}: ${first.phases}`);
  const shown = aborts.map((ms) => ms.toFixed(1)).join(", ");
  console.log(`aborts within 2,000 tokens settle after ${shown} ms; the model ${alive ? "goes on" : "is dead"}`);
}

async function main() {
  const { values } = parseArgs({
    options: { shape: { type: "string", default: "b2b" }, repeat: { type: "string", default: "3" }, only: { type: "string" } },
  });
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-loads-"));
  const server = fork(fileURLToPath(import.meta.url), ["--serve", folder]);
  try {
    const size = await write(folder, "model.gguf", { shape: values.shape });
    const base = await new Promise((resolve) => server.once("message", resolve));
    const job = { url: `${base}model.gguf`, small: `${base}demo/`, repeat: +values.repeat, hashes: Math.ceil(size / (1 << 20)) };
    if (values.only !== "chromium") {
      globalThis.busy = busy;
      globalThis.readKept = readKeptInNode;
      process.env.XDG_CACHE_HOME = path.join(folder, "cache");
      const library = new URL("../pkg/dist/node.js", import.meta.url).href;
      await tell("Node", size, await measure({ library, ...job }));
    }
    if (values.only !== "node") {
      const browser = await launch(path.join(folder, "profile"));
      const page = await browser.newPage();
      await page.exposeFunction("busy", busy);
      await page.goto(`${base}empty.html`);
      await page.evaluate(`globalThis.readKept = ${readKeptInPage}`);
      await tell("Chromium", size, await page.evaluate(measure, { library: `${base}dist/index.js`, ...job }));
      await browser.close();
    }
  } finally {
    server.kill();
    await rm(folder, { recursive: true, force: true });
  }
}

if (process.argv[2] === "--serve") {
  const dist = fileURLToPath(new URL("../pkg/dist/", import.meta.url));
  const demo = fileURLToPath(new URL("../pkg/models/ternlight-demo/", import.meta.url));
  const { url } = await serve({ mounts: { "/": process.argv[3], "/dist/": dist, "/demo/": demo } });
  process.send(url);
} else {
  await main();
}
