/**
 * What the option `ternaryPacking` costs: two models of the same random weights, packed with 2 and with 1.6 bits, decode and read prompts by
 * turns in one process, so that what else the machine does meets both.
 *
 *   node benches/packing.mjs [--shape b2b] [--threads 1] [--flavour auto] [--dot auto] [--batch 1] [--prompt 128] [--repeat 15]
 *
 * prints the weights in memory, the median of each rate, and the median of the ratios of neighbouring runs. Needs Node 22.18 or newer and a
 * built package; both models are in memory at once.
 */
import os from "node:os";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { median } from "./median.mjs";

const defaults = { shape: "b2b", threads: "1", flavour: "auto", dot: "auto", batch: "1", prompt: "128", repeat: "15" };
const options = Object.entries(defaults).map(([name, value]) => [name, { type: "string", default: value }]);
const { values } = parseArgs({ options: Object.fromEntries(options) });
const [threads, batch, length, repeat] = [values.threads, values.batch, values.prompt, values.repeat].map(Number);
const DECODED = 24;

const source = synthetic({ shape: values.shape });
const settings = { threads, flavour: values.flavour, dotProduct: values.dot, contextLength: 512, cache: false };
const packings = ["2-bit", "1.6-bit"];
const models = [];
for (const ternaryPacking of packings) models.push(await load(source, { ...settings, ternaryPacking }));
const [{ flavour, dotProduct }] = models.map(({ info }) => info);
console.log(`${os.cpus()[0].model}, Node ${process.version}, ${flavour}, ${dotProduct}, ${values.shape}, batch ${batch}`);

/** Tokens a second of a prompt, and of all answers together. */
async function rates(model, seed) {
  const prompt = (i) => Array.from({ length: i === 0 ? length : 4 }, (_, k) => 100 + ((seed * 31 + i * 7 + k) % 400));
  const options = { temperature: 0, maxTokens: DECODED, ignoreEos: true };
  const { timings } = await model.generate(prompt(0), { ...options, maxTokens: 1 }).finished;
  const begun = performance.now();
  await Promise.all(Array.from({ length: batch }, (_, i) => model.generate(prompt(i + 1), options).finished));
  return [timings.promptPerSecond, (batch * DECODED * 1000) / (performance.now() - begun)];
}

const found = packings.map(() => []);
for (let run = -1; run < repeat; run++) {
  for (const which of run % 2 === 0 ? [0, 1] : [1, 0]) {
    const rate = await rates(models[which], run + 1);
    if (run >= 0) found[which].push(rate); // the first run warms up
  }
}
for (const [which, name] of packings.entries()) {
  const [prefill, decode] = [0, 1].map((kind) => median(found[which].map((rate) => rate[kind])));
  const megabytes = models[which].info.memory.weights / 1e6;
  console.log(`${name}: ${megabytes.toFixed(0)} MB, prefill ${prefill.toFixed(1)}, decode ${decode.toFixed(1)} tokens/s`);
}
const ratios = [0, 1].map((kind) => median(found[1].map((rate, run) => rate[kind] / found[0][run][kind])));
console.log(`1.6-bit of 2-bit: prefill ${ratios[0].toFixed(2)}, decode ${ratios[1].toFixed(2)}`);
for (const model of models) await model.close();
