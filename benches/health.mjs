/**
 * What the load option `health` takes of a step, on the demo model and on the 2B shape:
 *
 *   node benches/health.mjs [--threads 2] [--pairs 300] [--only demo|b2b]
 *
 * Loads each model twice, with and without `health` at its default share, and lets them write the same answer by turns: each pair begins
 * with the other one than the pair before. The tokens must be the same. A machine varies by more than is to be shown, and for longer than an
 * answer takes: pairs are short and many, and what counts is the mean of the middle half of their ratios, with the deviation of that mean
 * in resamples of the pairs. The model that waits goes on comparing its weights, which is within its share. Writes
 * results/DATE-health.json. Node 22.18 or newer and a built package. About five minutes.
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
const RESAMPLES = 1000;
const PROMPT = 16;

/** Milliseconds of an answer's step, and its tokens. */
async function turn(model, maxTokens, seed) {
  const prompt = Array.from({ length: PROMPT }, (_, i) => (31 * i + 7) % model.info.vocab);
  const answer = model.generate(prompt, { temperature: 0.8, seed, ignoreEos: true, maxTokens });
  const { tokens, timings } = await answer.finished;
  return { ms: timings.predictedMs / (maxTokens - 1), tokens };
}

async function compared({ source, tokens, part }) {
  const options = { threads, contextLength: 512, kvCacheTokens: 512, maxSequences: 1, cache: false };
  const models = { off: await load(source(), options), on: await load(source(), { ...options, health: true }) };
  try {
    for (const model of Object.values(models)) await turn(model, 32, 0);
    const runs = { off: [], on: [] };
    for (let pair = 0; pair < pairs * part; pair++) {
      const written = {};
      for (const name of pair % 2 ? ["on", "off"] : ["off", "on"]) {
        const { ms, tokens: own } = await turn(models[name], tokens, pair);
        runs[name].push(ms);
        written[name] = own;
      }
      deepStrictEqual(written.on, written.off);
    }
    const { state, share, signals } = await models.on.health();
    const { from } = signals.weights;
    const ratios = runs.on.map((ms, i) => ms / runs.off[i] - 1);
    const more = middle(ratios);
    return { runs, tokens, more, deviation: deviation(ratios), state, share, compared: from, perplexity: signals.perplexity.from };
  } finally {
    for (const model of Object.values(models)) await model.close();
  }
}

const mean = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;

/** The mean of the middle half. */
function middle(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const quarter = Math.floor(sorted.length / 4);
  return mean(sorted.slice(quarter, sorted.length - quarter));
}

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
