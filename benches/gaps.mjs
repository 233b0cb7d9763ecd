/**
 * How smooth a stream stays while a long prompt arrives beside it:
 *
 *   node benches/gaps.mjs "$(bash scripts/smollm2.sh)" [--threads 2] [--prompt 2000] [--chunks 256,512,1024]
 *
 * For each `prefillChunk`: the gaps between two pieces of a running answer before, and while the prompt is computed, and when the
 * prompt's own first token comes, beside the answer and alone. Needs a built package.
 */
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", default: "2" },
    prompt: { type: "string", default: "2000" },
    chunks: { type: "string", default: "256,512,1024" },
  },
});
const [file] = positionals;
const count = +values.prompt;

/** Notes when each piece came. */
async function follow(generation, times) {
  for await (const _ of generation) times.push(performance.now());
}

/** Milliseconds between pieces. */
const gapsOf = (times) => times.slice(1).map((time, i) => time - times[i]);
const share = (gaps, part) => gaps.toSorted((a, b) => a - b)[Math.min(gaps.length - 1, Math.floor(gaps.length * part))] ?? NaN;
const shown = (gaps) => [0.5, 0.95, 1].map((part) => share(gaps, part).toFixed(1)).join(" | ");

console.log(`| prefillChunk | gaps before: p50 | p95 | most | while ${count} tokens arrive: p50 | p95 | most | first token beside | alone |`);
console.log(`|${"---|".repeat(9)}`);
for (const prefillChunk of values.chunks.split(",").map(Number)) {
  const options = { threads: +values.threads, contextLength: count + 1024, prefillChunk, prefixReuse: false, cache: false };
  const model = await load(file, options);
  // Any tokens are a prompt; the same ones for each size.
  const prompt = Array.from({ length: count }, (_, i) => 300 + ((i * 7919) % 40_000));
  const greedy = { temperature: 0, ignoreEos: true };
  await model.generate("Once there was a fisherman who", { ...greedy, maxTokens: 64 }).finished;
  const alone = (await model.generate(prompt, { ...greedy, maxTokens: 1 }).finished).timings.ttftMs;

  const times = [];
  const answer = model.generate("The lighthouse keeper climbed the stairs and", { ...greedy, maxTokens: 900 });
  const followed = follow(answer, times);
  while (times.length < 100) await new Promise((next) => setTimeout(next, 1));
  const from = performance.now();
  const beside = (await model.generate(prompt, { ...greedy, maxTokens: 1 }).finished).timings.ttftMs;
  const to = performance.now();
  answer.stop();
  await followed;
  const before = gapsOf(times.filter((time) => time < from));
  const during = gapsOf(times.filter((time) => time >= from && time <= to));
  console.log(`| ${prefillChunk} | ${shown(before)} | ${shown(during)} | ${beside.toFixed(0)} | ${alone.toFixed(0)} |`);
  await model.close();
}
