/**
 * What the load option `health` takes of a step, on the demo model and on the 2B shape:
 *
 *   node benches/health.mjs [--threads 2] [--pairs 300] [--only demo|b2b]
 *
 * Loads each model with and without `health` at its default share, twelve times, and lets both write the same answer by turns: each pair
 * begins with the other one than the pair before. The tokens must be the same. A machine varies by more than is to be shown, and for longer
 * than an answer takes: pairs are short and many, and what counts is the mean of the middle half of their ratios, and of the loads' means the
 * same, with its deviation in resamples of the loads. The model that waits goes on comparing its weights, which is within its share. Writes
 * results/DATE-health.json. Node 22.18 or newer and a built package. About eight minutes.
 */
import { deepStrictEqual } from "node:assert";
import { writeFile } from "node:fs/promises";
import { availableParallelism, cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: String(Math.min(availableParallelism(), 8)) },
    pairs: { type: "string", default: "300" },
    only: { type: "string" },
  },
});
const [threads, pairs] = [Number(values.threads), Number(values.pairs)];
/** Tokens of an answer, about 0.15 s of the demo model and one of the 2B shape, and the part of the pairs that is enough. */
const shapes = {
  demo: { source: () => new URL("../pkg/models/ternlight-demo/", import.meta.url), tokens: 480, part: 1 },
  b2b: { source: () => synthetic({ shape: "b2b" }), tokens: 20, part: 1 / 4 },
};
/** Loads of both models, every other one in the other order: two loads of one model differ by several per cent of a step. */
const LOADS = 12;
const RESAMPLES = 1000;
const PROMPT = 16;

/** Milliseconds of an answer's step, and its tokens. */
async function turn(model, maxTokens, seed) {
  const prompt = Array.from({ length: PROMPT }, (_, i) => (31 * i + 7) % model.info.vocab);
  const answer = model.generate(prompt, { temperature: 0.8, seed, ignoreEos: true, maxTokens });
  const { tokens, timings } = await answer.finished;
  return { ms: timings.predictedMs / (maxTokens - 1), tokens };
}

/** Pairs of two models that are loaded in this order; adds what they took to `runs`. */
async function round(names, { source, tokens }, count, runs) {
  const options = { threads, contextLength: 512, kvCacheTokens: 512, maxSequences: 1, cache: false };
  const models = {};
  try {
    for (const name of names) models[name] = await load(source(), { ...options, health: name === "on" });
    for (const model of Object.values(models)) await turn(model, 32, 0);
    const ratios = [];
    for (let pair = 0; pair < count; pair++) {
      const [ms, written] = [{}, {}];
      for (const name of pair % 2 ? ["on", "off"] : ["off", "on"]) {
        ({ ms: ms[name], tokens: written[name] } = await turn(models[name], tokens, pair));
        runs[name].push(ms[name]);
      }
      deepStrictEqual(written.on, written.off);
      ratios.push(ms.on / ms.off - 1);
    }
    const { state, share, signals } = await models.on.health();
    return { more: middle(ratios), state, share, compared: signals.weights.from, perplexity: signals.perplexity.from };
  } finally {
    for (const model of Object.values(models)) await model.close();
  }
}

async function compared(shape) {
  const runs = { off: [], on: [] };
  const loads = [];
  for (let i = 0; i < LOADS; i++) {
    loads.push(await round(i % 2 ? ["on", "off"] : ["off", "on"], shape, Math.ceil((pairs * shape.part) / LOADS), runs));
  }
  const each = loads.map(({ more }) => more);
  // What is told besides is of the last load.
  const all = { more: middle(each), deviation: deviation(each), share: mean(loads.map(({ share }) => share)) };
  return { runs, tokens: shape.tokens, loads, ...loads.at(-1), ...all };
}

const mean = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;

/** The mean of the middle half. */
function middle(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const quarter = Math.floor(sorted.length / 4);
  return mean(sorted.slice(quarter, sorted.length - quarter));
}

/** Of the middle half's mean, in resamples. */
function deviation(values) {
  const any = () => values[Math.floor(Math.random() * values.length)];
  const found = Array.from({ length: RESAMPLES }, () => middle(values.map(any)));
  return Math.sqrt(mean(found.map((one) => (one - mean(found)) ** 2)));
}

const before = loadavg()[0];
const rows = {};
for (const [name, shape] of Object.entries(shapes)) if ((values.only ?? name) === name) rows[name] = await compared(shape);
for (const [name, { runs, more, deviation, state, share, compared }] of Object.entries(rows)) {
  const [off, on] = [middle(runs.off), middle(runs.on)];
  const percent = (one) => `${(100 * one).toFixed(2)} %`;
  console.log(
    `${name.padEnd(5)} a step ${off.toFixed(3)} ms, with health ${on.toFixed(3)} ms; in ${runs.on.length} pairs ${percent(more)} ± ${percent(deviation)}; ${percent(share)} of a core, ${state}, rounds over all weights ${compared.rounds}`,
  );
}
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
console.log(`${threads} threads, ${machine.cpu}, load of the machine before: ${before.toFixed(2)}`);
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-health.json`, import.meta.url);
if (!values.only) await writeFile(file, `${JSON.stringify({ date, machine, settings: { threads, pairs, promptTokens: PROMPT }, rows })}\n`);
