/**
 * How soon the first answer comes, and how fast it is:
 *
 *   node benches/first.mjs prefill [--shape b2b] [--rate 20] [--tokens 500] [--repeat 2] [--threads 2]
 *   node benches/first.mjs curve [--where node,chromium,firefox] [--repeat 5] [--pause 1000]
 *   node benches/first.mjs load [--where node,chromium,firefox] [--repeat 9] [--against DIST] [--folder] [--gguf FILE] [--latency 0]
 *
 * `prefill`: a model of the shape from a server of its own process that sends so many MB/s; from the last byte to the first token, with the
 * option `prefill` and without, by turns. `curve`: how many tokens of the demo model's first answer have come after so many milliseconds,
 * with the option `warmup` and without, each run in a new process or browser that pauses between load and prompt. `load`: from `load()` to
 * the first token of the demo model out of the cache, or in Node from its folder, with its phases; by turns with another build's `dist`. A
 * GGUF may be given instead, and each answer of the model's server begins later by so many milliseconds.
 * Writes results/DATE-first-WHAT.json. Needs a built package.
 */
import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdir, mkdtemp, open as openFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { cpus, loadavg, tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { open, openInFirefox } from "../pkg/test/package/browsers.mjs";
import { serve } from "../scripts/serve.mjs";
import { median } from "./median.mjs";

const here = fileURLToPath(import.meta.url);
const dist = fileURLToPath(new URL("../pkg/dist/", import.meta.url));
const demo = fileURLToPath(new URL("../pkg/models/ternlight-demo/", import.meta.url));
const epoch = () => performance.timeOrigin + performance.now();

// From the last byte to the first token

/** Serves one file at so many bytes a millisecond, all connections together. */
async function serveSlowly(file, rate) {
  const { size } = await stat(file);
  const handle = await openFile(file);
  let [due, last] = [0, 0];
  const server = createServer(async (request, response) => {
    if (request.url === "/last") return response.end(String(last));
    if (request.url !== "/model.gguf") return response.writeHead(404).end();
    const [, from = 0, to = size - 1] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const end = Math.min(Number(to) + 1, size);
    const range = `bytes ${from}-${end - 1}/${size}`;
    response.writeHead(206, { "content-range": range, "content-length": end - from, etag: '"1"' });
    const gone = once(response, "close");
    for (let at = Number(from); at < end && !response.destroyed; ) {
      const piece = Buffer.alloc(Math.min(64 << 10, end - at));
      await handle.read(piece, 0, piece.length, at);
      at += piece.length;
      due = Math.max(due, performance.now()) + piece.length / rate;
      const wait = due - performance.now();
      if (wait > 1) await new Promise((next) => setTimeout(next, wait));
      if (!response.write(piece)) await Promise.race([once(response, "drain"), gone]);
      if (at === size) last = epoch();
    }
    response.end();
  });
  server.listen(0, "127.0.0.1", () => process.send(`http://127.0.0.1:${server.address().port}/model.gguf`));
}

async function prefill({ shape, rate, tokens, repeat, threads }) {
  const { synthetic } = await import("../pkg/src/bench/synthetic.ts");
  const { load } = await import(path.join(dist, "node.js"));
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-first-"));
  const file = path.join(folder, "model.gguf");
  await pipeline(synthetic({ shape }).stream(), createWriteStream(file));
  const server = fork(here, ["--serve", file, rate]);
  try {
    const url = await new Promise((resolve) => server.once("message", resolve));
    const prompt = Array.from({ length: +tokens }, (_, i) => 10 + ((i * 7919) % 4000));
    const runs = [];
    for (let turn = 0; turn < +repeat; turn++) {
      for (const ahead of [false, true]) {
        const begun = epoch();
        const options = { threads: +threads, contextLength: 1024, cache: false, ...(ahead && { prefill: prompt }) };
        const model = await load(url, options);
        const loaded = epoch();
        let first = 0;
        for await (const _ of model.generate(prompt, { temperature: 0, ignoreEos: true, maxTokens: 2 })) first ||= epoch();
        const last = Number(await (await fetch(new URL("/last", url))).text());
        const [download, after, toToken] = [last - begun, loaded - last, first - last].map(Math.round);
        runs.push({ ahead, download, after, toToken, layers: model.info.prefill?.layers ?? null });
        console.log(runs.at(-1));
        await model.close();
      }
    }
    const of = (ahead) => median(runs.filter((run) => run.ahead === ahead).map((run) => run.toToken));
    console.log(`${shape}, ${tokens} tokens, ${rate} MB/s: first token ${of(false)} ms behind the last byte, with prefill ${of(true)}`);
    return { shape, rate: +rate, tokens: +tokens, threads: +threads, runs };
  } finally {
    server.kill();
    await rm(folder, { recursive: true, force: true });
  }
}

// In pages and in Node

/** Answers with what `work(load, argument)` answers, from a page or a process of its own. */
async function runIn(where, work, argument, base, build = "dist") {
  const program = (library) => `const { load } = await import(${JSON.stringify(library)});
    const work = ${work};
    const told = JSON.stringify(await work(load, ${JSON.stringify(argument)}));`;
  if (where === "node") {
    const source = `${program(path.join(base.builds[build], "node.js"))} console.log(told);`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", source]);
    return JSON.parse(stdout);
  }
  const name = `${where}.html`;
  const script = `${program(`/${build}/index.js`)} document.querySelector("output").textContent = told;`;
  await writeFile(path.join(base.folder, name), `<!doctype html><output></output><script type="module">${script}</script>`);
  const after = [];
  try {
    const how = { chromium: open, firefox: openInFirefox }[where];
    // On disk, as users have it: in memory Chromium reads what pages keep more slowly (results/first_answer.md, "The cached demo model").
    const profile = await mkdtemp(path.join(base.folder, "profile-"));
    return JSON.parse((await how({ after: (end) => after.push(end) }, `${base.url}${name}`, profile)).printed);
  } finally {
    for (const end of after.reverse()) await end();
  }
}

/** When each token of the first answer came, in milliseconds from the call. */
async function answer(load, { url, options, pause }) {
  const model = await load(url, { cache: false, ...options });
  await new Promise((next) => setTimeout(next, pause));
  const begun = performance.now();
  const times = [];
  const given = { temperature: 0.7, seed: 1, ignoreEos: true, maxTokens: 450 };
  for await (const { tokens } of model.generate("Once upon a time there was a little rabbit who", given)) {
    const at = Math.round(10 * (performance.now() - begun)) / 10;
    for (const _ of tokens) times.push(at);
  }
  await model.close();
  return times;
}

const MARKS = [25, 50, 100, 150, 200, 250];

async function curve({ where, repeat, pause, threads }, base) {
  const found = {};
  console.log(`| | | first token, ms | ${MARKS.map((ms) => `after ${ms} ms`).join(" | ")} | last 100, tokens/s |`);
  console.log(`|---|---|--:|${"--:|".repeat(MARKS.length + 1)}`);
  for (const place of where.split(",")) {
    const runs = { false: [], true: [] };
    for (let turn = 0; turn < +repeat; turn++) {
      for (const warmup of [false, true]) {
        const options = { threads: +threads, warmup };
        runs[warmup].push(await runIn(place, answer, { url: base.models, options, pause: +pause }, base));
      }
    }
    for (const warmup of [false, true]) {
      const of = (one) => median(runs[warmup].map(one));
      const by = MARKS.map((ms) => of((times) => times.filter((at) => at <= ms).length));
      const rate = of((times) => Math.round(1e5 / (times.at(-1) - times.at(-101))));
      console.log(`| ${place} | ${warmup ? "warmed up" : "cold"} | ${of((times) => times[0])} | ${by.join(" | ")} | ${rate} |`);
    }
    found[place] = runs;
  }
  return { pause: +pause, threads: +threads, found };
}

/** From `load()` to the first token, of a model that was loaded before: whole, loaded, and the phases. */
async function again(load, { url, options, repeat }) {
  await (await load(url, options)).close();
  const runs = [];
  for (let i = 0; i < repeat; i++) {
    performance.clearMeasures();
    await new Promise((next) => setTimeout(next, 300));
    const begun = performance.now();
    const model = await load(url, { ...options, userTiming: true });
    const loaded = performance.now() - begun;
    for await (const _ of model.generate("Once upon a time", { maxTokens: 1 })) break;
    const first = performance.now() - begun;
    const phases = performance.getEntriesByType("measure").filter((one) => one.startTime < begun + loaded);
    runs.push({ first, loaded, phases: phases.map((one) => [one.name, one.startTime - begun, one.duration]) });
    await model.close();
  }
  return runs;
}

async function loads({ where, repeat, threads, folder, gguf = "", latency }, base) {
  if (folder && where !== "node") throw new Error("--folder: only --where node reads folders");
  const found = {};
  const url = folder ? demo : base.models + path.basename(gguf);
  for (const place of where.split(",")) {
    const runs = Object.fromEntries(Object.keys(base.builds).map((build) => [build, []]));
    // Three turns, each in a new process or browser.
    for (let turn = 0; turn < 3; turn++) {
      for (const build of Object.keys(base.builds)) {
        const argument = { url, options: { threads: +threads }, repeat: Math.ceil(repeat / 3) };
        runs[build].push(...(await runIn(place, again, argument, base, build)));
      }
    }
    for (const [build, all] of Object.entries(runs)) {
      const [whole, loaded] = [median(all.map((run) => run.first)), median(all.map((run) => run.loaded))];
      const least = Math.min(...all.map((run) => run.first));
      const middle = all.toSorted((a, b) => a.first - b.first)[all.length >> 1];
      const shown = middle.phases.map(([name, from, ms]) => `${name} ${from.toFixed(0)}+${ms.toFixed(0)}`).join(", ");
      const times = `first token after ${whole.toFixed(0)} ms (least ${least.toFixed(0)}), loaded ${loaded.toFixed(0)}`;
      console.log(`${place}, ${build}: ${times}: ${shown}`);
    }
    found[place] = runs;
  }
  return { threads: +threads, folder, gguf: path.basename(gguf), latency: +latency, found };
}

async function main() {
  const text = (byDefault) => ({ type: "string", default: byDefault });
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      ...{ shape: text("b2b"), rate: text("20"), tokens: text("500"), repeat: { type: "string" }, threads: text("2") },
      ...{ where: text("node,chromium,firefox"), pause: text("1000"), against: { type: "string" } },
      ...{ folder: { type: "boolean", default: false }, gguf: { type: "string" }, latency: text("0") },
    },
  });
  const [what] = positionals;
  const work = { prefill, curve, load: loads }[what];
  if (!work) throw new Error("prefill, curve or load");
  const repeat = values.repeat ?? { prefill: "2", curve: "5", load: "9" }[what];
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-first-"));
  await mkdir(path.join(folder, "cache"));
  const builds = { dist, ...(values.against && { against: path.resolve(values.against) }) };
  const served = Object.entries(builds).map(([name, place]) => [`/${name}/`, place]);
  const models = values.gguf ? path.resolve(path.dirname(values.gguf)) : demo;
  const mounts = { "/": folder, ...Object.fromEntries(served), "/models/": models };
  const before = (asked) => asked.startsWith("/models/") && +values.latency > 0 && sleep(+values.latency);
  const server = await serve({ mounts, before });
  process.env.XDG_CACHE_HOME = path.join(folder, "cache");
  try {
    const loadBefore = loadavg()[0];
    const found = await work({ ...values, repeat }, { folder, builds, url: server.url, models: `${server.url}models/` });
    const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore };
    const date = new Date().toISOString();
    const file = new URL(`results/${date.slice(0, 10)}-first-${what}.json`, import.meta.url);
    await writeFile(file, `${JSON.stringify({ date, machine, ...found })}\n`);
  } finally {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  }
}

if (process.argv[2] === "--serve") await serveSlowly(process.argv[3], Number(process.argv[4]) * 1000);
else await main();
