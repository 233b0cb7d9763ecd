/**
 * What speculation and warming up are worth with a chat model:
 *
 *   node benches/answers.mjs "$(bash scripts/smollm2.sh)" [--threads 2] [--repeat 5]
 *
 * Decode speed with and without `promptLookup`, by turns, where an answer quotes its prompt and where it does not; and the time to the
 * first token of the first answer, with and without `warmup()` before it, each in a process of its own. Needs a built package.
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { median } from "./median.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", default: "2" },
    repeat: { type: "string", default: "5" },
    first: { type: "string" },
  },
});
const [file] = positionals;
const model = await load(file, { threads: +values.threads, contextLength: 2048, cache: false });
const say = (content, options) =>
  model.chat([{ role: "user", content }], { temperature: 0, ignoreEos: true, ...options });

const people = ["anna, 31, Oslo", "boris, 44, Riga", "clara, 27, Ghent", "dmitri, 52, Turku", "elena, 38, Cork"];
const rows = people.map((one) => one.split(", ")).map(([name, age, town]) => `  { name: "${name}", age: ${age}, town: "${town}" },`);
const prompts = {
  code: `Rewrite this list with every name in upper case and nothing else changed:\n\nconst people = [\n${rows.join("\n")}\n];\n`,
  quotes: `Write this list again, word for word:\n\n${people.map((one, i) => `${i + 1}. ${one}`).join("\n")}\n`,
  prose: "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
};

async function speculation() {
  for (const [name, prompt] of Object.entries(prompts)) {
    const speeds = { false: [], true: [] };
    for (let turn = 0; turn <= +values.repeat; turn++) {
      for (const promptLookup of [false, true]) {
        const { timings } = await say(prompt, { maxTokens: 120, promptLookup }).finished;
        // The first round warms up.
        if (turn > 0) speeds[promptLookup].push(timings.predictedPerSecond);
      }
    }
    const [plain, guessed] = [median(speeds.false), median(speeds.true)];
    console.log(`| ${name} | ${plain.toFixed(1)} | ${guessed.toFixed(1)} | ${(guessed / plain).toFixed(2)} |`);
  }
}

/** Of this process's first answer. */
async function first(warm) {
  if (warm) await model.warmup();
  const begun = performance.now();
  for await (const _ of say(prompts.prose, { maxTokens: 2 })) break;
  return performance.now() - begun;
}

if (values.first) {
  console.log(await first(values.first === "warm"));
} else {
  console.log("| | tokens/s | with `promptLookup` | ÷ |\n|---|--:|--:|--:|");
  await speculation();
  const runs = (how) =>
    Array.from({ length: +values.repeat }, () => {
      const told = execFileSync(process.execPath, [fileURLToPath(import.meta.url), ...process.argv.slice(2), "--first", how]);
      return Number(told);
    });
  const [cold, warm] = [median(runs("cold")), median(runs("warm"))];
  console.log(`\nfirst token of the first answer: ${cold.toFixed(0)} ms, after warmup() ${warm.toFixed(0)} ms`);
}
await model.close();
