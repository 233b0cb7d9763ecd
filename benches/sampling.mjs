/**
 * What choosing a token takes, with a vocabulary of 128,256, beside a step of the 2B shape:
 *
 *   node benches/sampling.mjs [--shape fairy,vocab=128256] [--threads 2] [--repeat 5]
 *
 * makes a model of the shape and writes answers by turns, greedy and with links of the chain; tells the median of a token's time
 * and what it is above greedy. Logits of a random model are nearly flat, which is the worst that can come. Needs a built package,
 * and Node 22.18 or newer.
 */
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { median } from "./median.mjs";

const { values } = parseArgs({
  options: {
    shape: { type: "string", default: "fairy,vocab=128256" },
    threads: { type: "string", default: "2" },
    repeat: { type: "string", default: "5" },
  },
});

const open = { temperature: 1, topK: 0, topP: 1 };
const chain = {
  temperature: 0.9,
  dynamicTemperature: 0.2,
  repetitionPenalty: 1.1,
  frequencyPenalty: 0.1,
  presencePenalty: 0.1,
  dryMultiplier: 0.8,
  topNSigma: 3,
  typicalP: 0.95,
  topP: 0.95,
  minP: 0.001,
  xtcProbability: 0.5,
};
const settings = {
  greedy: { temperature: 0 },
  "greedy, 5 logprobs": { temperature: 0, logprobs: 5 },
  defaults: {},
  "temperature alone": open,
  "top-p 0.95 of all": { ...open, topP: 0.95 },
  "mirostat": { ...open, mirostatTau: 5 },
  "the whole chain, top-k 40": { ...chain, topK: 40, adaptiveTopK: true },
  "the whole chain without top-k": { ...chain, topK: 0 },
};

const bytes = new Uint8Array(await new Response(synthetic({ shape: values.shape }).stream()).arrayBuffer());
const model = await load(bytes, { threads: +values.threads, contextLength: 512, cache: false });
const prompt = Array.from({ length: 128 }, (_, i) => 10 + ((i * 7919) % 4000));
const times = Object.fromEntries(Object.keys(settings).map((name) => [name, []]));
for (let turn = 0; turn <= +values.repeat; turn++) {
  for (const [name, options] of Object.entries(settings)) {
    const { timings } = await model.generate(prompt, { maxTokens: 33, ignoreEos: true, seed: turn, ...options }).finished;
    // The first round warms up.
    if (turn > 0) times[name].push(timings.predictedMs / timings.predictedN);
  }
}
await model.close();

const least = median(times.greedy);
console.log("| | ms a token | above greedy | |\n|---|--:|--:|--:|");
for (const [name, runs] of Object.entries(times)) {
  const [ms, more] = [median(runs), median(runs) - least];
  console.log(`| ${name} | ${ms.toFixed(2)} | ${more.toFixed(2)} | ${((100 * more) / least).toFixed(1)} % |`);
}
