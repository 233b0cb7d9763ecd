/**
 * What the load option `health` takes of a step, on the demo model and on the 2B shape:
 *
 *   node benches/health.mjs [--threads 2] [--pairs 300] [--only demo|b2b]
 *
 * Loads each model with `health` at its default share, several times, and lets it write the same answer by turns with and without watching
 * (`health({ watch: false })`): each pair begins with the other one than the pair before. The tokens must be the same. Two loads of one model
 * differ by several per cent of a step, so that one load has both. A machine varies by more than is to be shown, and for longer than an answer
 * takes: pairs are short and many, and what counts is the mean of their ratios without the outermost tenth, with its deviation in resamples. Writes
 * results/DATE-health.json. Node 22.18 or newer and a built package. About twelve minutes.
 */
import { deepStrictEqual } from "node:assert";
import { writeFile } from "node:fs/promises";
import { availableParallelism, cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { processorName } from "../pkg/src/platform/system.ts";

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: String(Math.min(availableParallelism(), 8)) },
    pairs: { type: "string", default: "300" },
    only: { type: "string" },
  },
});
const [threads, pairs] = [Number(values.threads), Number(values.pairs)];
/** Tokens of an answer, about 0.15 s of the demo model and 0.7 of the 2B shape. */
const shapes = {
  demo: { source: () => new URL("../pkg/models/ternlight-demo/", import.meta.url), tokens: 480 },
  b2b: { source: () => synthetic({ shape: "b2b" }), tokens: 20 },
};
const LOADS = 4;
const RESAMPLES = 1000;
const PROMPT = 16;

/** Milliseconds of an answer's step, and its tokens. */
async function turn(model, maxTokens, seed) {
  const prompt = Array.from({ length: PROMPT }, (_, i) => (31 * i + 7) % model.info.vocab);
  const answer = model.generate(prompt, { temperature: 0.8, seed, ignoreEos: true, maxTokens });
  const { tokens, timings } = await answer.finished;
  return { ms: timings.predictedMs / (maxTokens - 1), tokens };
}

/** Pairs of one load; adds what they took to `runs`. */
async function round({ source, tokens }, count, runs) {
  const options = { threads, contextLength: 512, kvCacheTokens: 512, maxSequences: 1, cache: false };
  const model = await load(source(), { ...options, health: true });
  try {
    await turn(model, 32, 0);
    const ratios = [];
    for (let pair = 0; pair < count; pair++) {
      const [ms, written] = [{}, {}];
      for (const name of pair % 2 ? ["on", "off"] : ["off", "on"]) {
        await model.health({ watch: name === "on" });
        ({ ms: ms[name], tokens: written[name] } = await turn(model, tokens, pair));
        runs[name].push(ms[name]);
      }
      deepStrictEqual(written.on, written.off);
      ratios.push(ms.on / ms.off - 1);
    }
    const { state, share, signals } = await model.health({ watch: true });
    return { ratios, state, share, compared: signals.weights.from, perplexity: signals.perplexity.from };
  } finally {
    await model.close();
  }
}

async function compared(shape) {
  const runs = { off: [], on: [] };
  const loads = [];
  for (let i = 0; i < LOADS; i++) loads.push(await round(shape, Math.ceil(pairs / LOADS), runs));
  const ratios = loads.flatMap((one) => one.ratios);
  // What is told besides is of the last load.
  const all = { more: middle(ratios), deviation: deviation(ratios), share: mean(loads.map(({ share }) => share)) };
  const byLoad = loads.map(({ ratios: its, ...rest }) => ({ more: middle(its), ...rest }));
  return { runs, tokens: shape.tokens, ...byLoad.at(-1), ...all, loads: byLoad };
}

const mean = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;

/** The mean without the greatest and the least twentieth. Few answers have a step that is looked at: more must not be left out. */
function middle(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const some = Math.floor(sorted.length / 20);
  return mean(sorted.slice(some, sorted.length - some));
}

/** Of that mean, in resamples. */
function deviation(values) {
  const any = () => values[Math.floor(Math.random() * values.length)];
  const found = Array.from({ length: RESAMPLES }, () => middle(values.map(any)));
  return Math.sqrt(mean(found.map((one) => (one - mean(found)) ** 2)));
}

const before = loadavg()[0];
const rows = {};
for (const [name, shape] of Object.entries(shapes)) if ((values.only ?? name) === name) rows[name] = await compared(shape);
for (const [name, { runs, more, deviation, state, share, compared, loads }] of Object.entries(rows)) {
  const [off, on] = [middle(runs.off), middle(runs.on)];
  const percent = (one) => `${(100 * one).toFixed(2)} %`;
  console.log(
    `${name.padEnd(5)} a step ${off.toFixed(3)} ms, with health ${on.toFixed(3)} ms; in ${runs.on.length} pairs ${percent(more)} ± ${percent(deviation)} (loads ${loads.map(({ more }) => percent(more)).join(", ")}); ${percent(share)} of a core, ${state}, rounds over all weights ${compared.rounds}`,
  );
}
const machine = { cpu: processorName(cpus()[0].model), cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
console.log(`${threads} threads, ${machine.cpu}, load of the machine before: ${before.toFixed(2)}`);
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-health.json`, import.meta.url);
if (!values.only) await writeFile(file, `${JSON.stringify({ date, machine, settings: { threads, pairs, promptTokens: PROMPT }, rows })}\n`);
