/**
 * What `prefault` costs at the load and saves in answers: page faults a token, and the longest step.
 *
 *   node benches/prefault.mjs [--shape 138m] [--threads 2] [--repeat 5]
 *
 * Loads a model of the shape in turns with and without it, with room for four contexts of 4096 tokens, and writes four answers of 128
 * tokens to prompts of 256, each in pages that no other has used. Writes results/DATE-prefault.json. Node 22.18 or newer, a built
 * package, Linux for the faults. About a minute.
 */
import { writeFile } from "node:fs/promises";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { median } from "./median.mjs";

const options = { shape: { type: "string", default: "138m" }, threads: { type: "string", default: "2" }, repeat: { type: "string", default: "5" } };
const { values } = parseArgs({ options });
const [threads, repeat] = [Number(values.threads), Number(values.repeat)];
const [PROMPT, ANSWER, ANSWERS] = [256, 128, 4];
const source = synthetic({ shape: values.shape });
const faults = () => process.resourceUsage().minorPageFault;

async function measured(prefault) {
  const begun = performance.now();
  const model = await load(source, { threads, prefault, contextLength: 4096, kvCacheTokens: 4 * 4096 });
  const loadMs = performance.now() - begun;
  await model.warmup();
  const before = faults();
  let longest = 0;
  for (let answer = 0; answer < ANSWERS; answer++) {
    const prompt = Array.from({ length: PROMPT }, (_, i) => (7 * i + 131 * answer) % model.info.vocab);
    let last = 0;
    for await (const _ of model.generate(prompt, { temperature: 0, ignoreEos: true, maxTokens: ANSWER })) {
      const now = performance.now();
      if (last > 0) longest = Math.max(longest, now - last);
      last = now;
    }
  }
  const perToken = (faults() - before) / (ANSWERS * (PROMPT + ANSWER));
  const { memoryBytes } = model.info;
  await model.close();
  return { loadMs, perToken, longest, memoryBytes };
}

const before = loadavg()[0];
const found = { without: [], prefault: [] };
for (let turn = 0; turn <= repeat; turn++) {
  for (const name of Object.keys(found)) {
    const one = await measured(name === "prefault");
    // The first turn warms up.
    if (turn > 0) found[name].push(one);
  }
}
for (const [name, runs] of Object.entries(found)) {
  const of = (key) => median(runs.map((run) => run[key]));
  console.log(
    `${name.padEnd(8)} load ${of("loadMs").toFixed(0)} ms, ${of("perToken").toFixed(2)} page faults a token, longest gap ${of("longest").toFixed(1)} ms, memory ${(of("memoryBytes") / 1e6).toFixed(0)} MB`,
  );
}
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
console.log(`${values.shape}, ${threads} threads, ${machine.cpu}, load of the machine before: ${before.toFixed(2)}`);
const settings = { shape: values.shape, threads, repeat, promptTokens: PROMPT, answerTokens: ANSWER, answers: ANSWERS };
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-prefault.json`, import.meta.url);
await writeFile(file, `${JSON.stringify({ date, machine, settings, runs: found })}\n`);
