/**
 * What belongs to large hybrids, at the shapes of Qwen3.5 4B and of 27 billion weights; `node benches/hybrid.mjs WHAT` with Node 22.18 or newer, a
 * built package, Linux, and for `page` Chromium. Speed itself: `node benches/rows.mjs hybrid`.
 *
 *   load [--shape bonsai27b]   a file on the disk: what load() and a first token take, from the system's cache and out of it, and the most memory
 *   page [--shape bonsai27b]   the demo page takes the same file from a loopback server: time, memory, and the longest that its thread was held
 *   crossing                   what a step takes more because the layers lie in several memories
 *   rotation                   the share of a step that inputs of rotated weights take
 *   mtp [MODEL]                what guesses of a head for further tokens cost where none is right and gain where all are, or what they do in a model
 *                              of one's own
 *
 * Each prints its figures and writes results/DATE-hybrid-WHAT.json. `--folder DIR` is where files of gigabytes go.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, existsSync } from "node:fs";
import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { availableParallelism, cpus, tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { processorName } from "../pkg/src/platform/system.ts";
import { readGguf } from "../pkg/test/source/support/split.ts";
import { isolation, policy, serve } from "../scripts/serve.mjs";
import { median } from "./median.mjs";
import { withTokenizer } from "./vocabulary.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    shape: { type: "string", default: "bonsai27b" },
    folder: { type: "string", default: tmpdir() },
    repeat: { type: "string", default: "5" },
    keep: { type: "boolean", default: false },
    pictures: { type: "string" },
    // What a process of its own is told.
    loads: { type: "string" },
  },
});
const repeat = Number(values.repeat);
const THREADS = 2;
/** Tokens of a short prompt. */
const PROMPT = 4;
const ids = (count) => Array.from({ length: count }, (_, i) => 100 + ((i * 7919) % 400));
/** How answers of a model that learned to write begin. */
const STORIES = ["Once upon a time there was a little rabbit who", "The king had three sons, and the youngest of them", "There was once a poor woman who had only one cow,"];
const greedy = (maxTokens) => ({ maxTokens, temperature: 0, ignoreEos: true });

/** A model file with a tokenizer, made once. */
async function onDisk() {
  const file = path.join(values.folder, `${values.shape}.gguf`);
  if (!existsSync(file)) {
    await pipeline(withTokenizer(synthetic({ shape: values.shape })), createWriteStream(`${file}.part`));
    await rename(`${file}.part`, file);
  }
  return file;
}

const status = async (pid, field) => {
  const text = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
  return 1024 * Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
};

/** A process that loads a file once and answers once. */
async function loadsOnce(file) {
  const { load } = await import("../pkg/dist/node.js");
  const begun = performance.now();
  const model = await load(file, { threads: THREADS, contextLength: 2048 });
  const loaded = performance.now() - begun;
  const pieces = model.generate(ids(PROMPT), { ...greedy(2), pieces: "token" });
  await pieces[Symbol.asyncIterator]().next();
  const first = performance.now() - begun;
  const [most, after] = await Promise.all(["VmHWM", "VmRSS"].map((field) => status("self", field)));
  process.send({ loaded, first, most, after, weights: model.info.memory.weights, total: model.info.memory.total });
}

async function child(file) {
  const one = fork(fileURLToPath(import.meta.url), ["--loads", file]);
  const [[said]] = await Promise.all([once(one, "message"), once(one, "exit")]);
  return said;
}

async function loading() {
  const file = await onDisk();
  const runs = [];
  // The first reads what the system may have dropped.
  for (let i = 0; i <= Math.min(repeat, 3); i++) runs.push(await child(file));
  if (!values.keep) await rm(file);
  const line = ({ loaded, first, most }) => `load ${seconds(loaded)}, first token ${seconds(first)}, most ${gigabytes(most)}`;
  for (const run of runs) console.log(line(run));
  return { shape: values.shape, threads: THREADS, prompt: PROMPT, runs };
}

const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;
const gigabytes = (bytes) => `${(bytes / 1e9).toFixed(2)} GB`;

/**
 * Loads models, and has each answer prompts by turns; answers each one's milliseconds a token, run by run, and of all answers the steps,
 * their rows and the tokens behind the first.
 */
async function byTurns(sources, { tokens, prompt = 8, prompts = [ids(prompt)], turns = repeat }) {
  const { load } = await import("../pkg/dist/node.js");
  const models = {};
  for (const [name, { source, options, asked }] of Object.entries(sources)) {
    const room = { threads: THREADS, contextLength: 512, maxSequences: 1, warmup: false, prefixReuse: false };
    models[name] = { model: await load(source, { ...room, ...options }), asked, ms: [], answers: [], info: null, steps: 0, rows: 0, tokens: 0 };
    models[name].info = models[name].model.info;
  }
  for (let turn = 0; turn <= turns; turn++) {
    const order = Object.values(models);
    for (const one of turn % 2 ? order.toReversed() : order) {
      let [ms, count] = [0, 0];
      for (const given of prompts) {
        const { tokens: answer, timings } = await one.model.generate(given, { ...greedy(tokens), ...one.asked }).finished;
        one.answers.push(answer.join());
        ms += timings.predictedMs;
        count += answer.length - 1;
        // A prompt is one step.
        one.steps--;
        one.rows -= timings.promptN;
      }
      one.tokens += count;
      if (turn > 0) one.ms.push(ms / count);
    }
  }
  for (const one of Object.values(models)) {
    const { counts, sum } = (await one.model.statistics()).histograms.stepTokens;
    one.steps += counts.reduce((all, count) => all + count, 0);
    one.rows += sum;
    await one.model.close();
  }
  return models;
}

/** In the page, before anything else: the longest that its thread was held, and what was shown when. */
function watchThread() {
  globalThis.held = [];
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    if (now - last > 70) globalThis.held.push([Math.round(last), Math.round(now - last - 20)]);
    last = now;
  }, 20);
}

/** The demo page, as a visitor has it: the address of the file is given, and then a few words are written. */
async function page() {
  const file = await onDisk();
  const { mounts } = await import("../pkg/test/page/support.mjs");
  const { launch } = await import("../pkg/test/package/support.mjs");
  const profile = await mkdtemp(path.join(values.folder, "profile-"));
  const headers = { ...isolation, ...policy };
  const server = await serve({ mounts: { ...mounts, "/model/": path.dirname(file) }, headers });
  const context = await launch(profile);
  const found = { shape: values.shape, visits: [] };
  try {
    const { url } = server;
    for (const name of ["from the server", "from the browser's own files"]) {
      const visit = await context.newPage();
      await visit.addInitScript(watchThread);
      found.visits.push({ name, ...(await visited(visit, url, `${url}model/${path.basename(file)}`, name)) });
      await visit.close();
    }
  } finally {
    await Promise.all([context.close(), server.close()]);
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    if (!values.keep) await rm(file);
  }
  const line = ({ name, loaded, first, held, shown }) =>
    `${name}: loaded after ${seconds(loaded)}, first piece ${seconds(first)}, longest held ${Math.max(0, ...held.map(([, ms]) => ms))} ms; ${shown.length} progress texts, the last "${shown.at(-1)}"`;
  for (const visit of found.visits) console.log(line(visit));
  return found;
}

async function visited(visit, url, model, name) {
  const picture = async (moment) => {
    if (values.pictures) await visit.screenshot({ path: path.join(values.pictures, `${name.split(" ").at(-1)}-${moment}.png`) });
  };
  const state = (wanted) => visit.waitForSelector(`:root[data-state="${wanted}"]`, { timeout: 180_000 });
  await visit.goto(url);
  await state("ready");
  await visit.getByRole("button", { name: "Change model" }).click();
  await visit.getByLabel("Address").fill(model);
  await visit.evaluate(() => {
    globalThis.held.length = 0;
    globalThis.shown = [];
    const summary = document.getElementById("model-summary");
    new MutationObserver(() => globalThis.shown.push(summary.textContent)).observe(summary, { childList: true });
  });
  const begun = performance.now();
  await visit.getByRole("button", { name: "Load", exact: true }).click();
  await state("loading");
  await new Promise((next) => setTimeout(next, 3000));
  await picture("loading");
  await visit.waitForSelector(':root:is([data-state="ready"], [data-state="failed"])', { timeout: 200_000 });
  const loaded = performance.now() - begun;
  await picture("ready");
  const alert = visit.getByRole("alert");
  if (await alert.isVisible()) throw new Error(await alert.innerText());
  await visit.getByRole("textbox", { name: "Prompt", exact: true }).fill("Hi");
  const asked = performance.now();
  await visit.getByRole("button", { name: "Generate" }).click();
  await visit.waitForFunction(() => document.getElementById("text").innerText.length > 2, null, { timeout: 60_000 });
  const first = performance.now() - asked;
  await new Promise((next) => setTimeout(next, 3000));
  await picture("writing");
  await visit.getByRole("button", { name: "Stop" }).click();
  const { held, shown } = await visit.evaluate(() => ({ held: globalThis.held, shown: globalThis.shown }));
  return { loaded, first, held, shown: shown.filter((_, i) => i % 20 === 0 || i === shown.length - 1) };
}

async function crossing() {
  // A small step, so that a crossing is not lost in it: the width of the rows is what crosses.
  const source = synthetic({ shape: "bonsai27b,layers=16,ffn=512,vocab=512,heads=4,vheads=16" });
  const whole = await byTurns({ whole: { source } }, { tokens: 8, turns: 1 });
  const { total } = whole.whole.info.memory;
  const sources = { whole: { source }, split: { source, options: { maxPartBytes: Math.floor(0.55 * total) } } };
  const { whole: one, split } = await byTurns(sources, { tokens: 256 });
  const { parts } = split.info;
  // Into each part but the first, and back.
  const crossings = parts;
  const more = median(split.ms.map((ms, i) => ms - one.ms[i])) / crossings;
  const same = one.answers.join() === split.answers.join();
  console.log(`a step ${median(one.ms).toFixed(3)} ms whole, ${median(split.ms).toFixed(3)} in ${parts} memories; a crossing ${(1000 * more).toFixed(0)} µs; same answers: ${same}`);
  return { parts, same, wholeMs: one.ms, splitMs: split.ms, crossingMs: more };
}

/** Loads of both kinds, every other time in the other order: two loads of one model differ by more than a rotation takes. */
const ROTATION_LOADS = 24;

async function rotation() {
  const shape = "bonsai27b,layers=4,vocab=512";
  const kinds = { plain: shape, rotated: `${shape},rotated=1024` };
  const loads = [];
  for (let i = 0; i < ROTATION_LOADS; i++) {
    const names = i % 2 ? ["rotated", "plain"] : ["plain", "rotated"];
    const sources = names.map((name) => [name, { source: synthetic({ shape: kinds[name] }), options: { weightPrefetch: "off" } }]);
    const { plain, rotated } = await byTurns(Object.fromEntries(sources), { tokens: 24 });
    loads.push({ plainMs: median(plain.ms), rotatedMs: median(rotated.ms) });
  }
  const shares = loads.map(({ plainMs, rotatedMs }) => 1 - plainMs / rotatedMs);
  const mean = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;
  const share = mean(shares);
  const deviation = Math.sqrt(mean(shares.map((one) => (one - share) ** 2)) / (shares.length - 1));
  const [plainMs, rotatedMs] = ["plainMs", "rotatedMs"].map((name) => mean(loads.map((one) => one[name])));
  console.log(`a step ${plainMs.toFixed(2)} ms, rotated ${rotatedMs.toFixed(2)}: ${(100 * share).toFixed(2)} ± ${(100 * deviation).toFixed(2)} % of it, by ${loads.length} loads of each`);
  return { shape, loads, share, deviation };
}

/** A model of random weights has no guess right, and one whose layers add nothing has all. */
async function mtp(model) {
  if (model) return guessing(path.basename(model), model, STORIES);
  const shape = "qwen3.5-4b,layers=16,vocab=32768,mtp=1";
  const wrong = await guessing(shape, synthetic({ shape }));
  const file = await followed(shape);
  const right = await guessing(shape, file);
  await rm(file);
  return { ...wrong, allRight: right };
}

async function guessing(shape, source, prompts) {
  const options = { mtp: true };
  const sources = {
    plain: { source, options, asked: { mtpDraft: false } },
    guessing: { source, options, asked: { mtpDraft: true } },
  };
  const { plain, guessing } = await byTurns(sources, { tokens: 96, prompts });
  const ratios = guessing.ms.map((ms, i) => plain.ms[i] / ms);
  const same = plain.answers.join() === guessing.answers.join();
  const { steps, rows, tokens } = guessing;
  const right = rows > steps ? (tokens - steps) / (rows - steps) : 0;
  console.log(`${shape}: ${median(plain.ms).toFixed(2)} ms a token, with guesses ${median(guessing.ms).toFixed(2)}: ${median(ratios).toFixed(3)} times as fast; same answers: ${same}; ${rows - steps} guesses, ${(100 * right).toFixed(0)} % of them right`);
  return { shape, plainMs: plain.ms, guessingMs: guessing.ms, ratio: median(ratios), same, steps, rows, tokens, right };
}

/**
 * A model of ternary weights in which a token decides the next alone: what layers add is zero, and the head for further tokens hands on the
 * token that it is given. Zeros take as long as any weights.
 */
async function followed(shape) {
  const file = path.join(values.folder, "all-right.gguf");
  await pipeline(withTokenizer(synthetic({ shape, type: "tq2_0" })), createWriteStream(file));
  const bytes = await readFile(file);
  const { tensors } = readGguf(bytes);
  const named = Object.fromEntries(tensors.map(({ name, data }) => [name, data]));
  for (const { name, data, dims } of tensors) {
    // A block is 64 bytes of codes and its scale, all zeros.
    if (/\.(ssm_out|attn_output|ffn_down)\.weight$/.test(name)) data.fill(0);
    if (name.endsWith("nextn.eh_proj.weight")) identity(data, dims);
    if (name.endsWith("nextn.enorm.weight")) new Float32Array(data.buffer, data.byteOffset, dims[0]).fill(1);
    if (name.endsWith("nextn.shared_head_norm.weight")) data.set(named["output_norm.weight"].subarray(0, data.length));
  }
  await writeFile(file, bytes);
  return file;
}

/** TQ2_0's code of one value on the diagonal, and of zero elsewhere. */
function identity(data, [cols, rows]) {
  const [BLOCK, BYTES] = [256, 66];
  for (let row = 0; row < rows; row++) {
    const blocks = data.subarray((row * cols * BYTES) / BLOCK, ((row + 1) * cols * BYTES) / BLOCK);
    for (let at = 0; at < blocks.length; at += BYTES) {
      blocks.fill(0x55, at, at + 64);
      // One, as a float of 16 bits.
      blocks.set([0, 0x3c], at + 64);
    }
    const value = row % BLOCK;
    // 128 values take 32 bytes: the first 32 of them their lowest bits.
    const byte = 32 * Math.floor(value / 128) + (value % 32);
    blocks[Math.floor(row / BLOCK) * BYTES + byte] += 1 << (2 * Math.floor((value % 128) / 32));
  }
}

const works = { load: loading, page, crossing, rotation, mtp };

if (values.loads) {
  await loadsOnce(values.loads);
  process.disconnect();
} else {
  const [what, model] = positionals;
  if (!works[what]) throw new Error(`what to measure: ${Object.keys(works).join(", ")}`);
  const machine = { runtime: `Node ${process.versions.node}`, cpu: processorName(cpus()[0].model), cores: availableParallelism() };
  const found = await works[what](model);
  const date = new Date().toISOString();
  const file = new URL(`results/${date.slice(0, 10)}-hybrid-${what}${model ? "-model" : ""}.json`, import.meta.url);
  await writeFile(file, `${JSON.stringify({ date, machine, ...found })}\n`);
}
