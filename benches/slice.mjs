/**
 * What `slice` gains at 2B: decode speed and memory of a shape with its whole vocabulary and with a smaller one, by turns, and the share of
 * a token's time that the head takes, from one `ternlight bench --profile` of each. Speed does not depend on what the weights are, so that
 * they are random.
 *
 *   node benches/slice.mjs [--shape b2b] [--vocab 128256,32768] [--threads 2] [--repeat 5] [--decode 64]
 *
 * prints a table and writes it as results/DATE-slice.json, which docs/scripts/figures.mjs puts into the guide. Needs Node 22.18 or newer
 * and a built package; on a machine that does nothing else.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { median } from "./median.mjs";

const { values } = parseArgs({
  options: {
    shape: { type: "string", default: "b2b" },
    vocab: { type: "string", default: "128256,32768" },
    threads: { type: "string", default: "2" },
    repeat: { type: "string", default: "5" },
    decode: { type: "string", default: "64" },
  },
});
const [threads, repeat, decode] = [values.threads, values.repeat, values.decode].map(Number);
const sizes = values.vocab.split(",").map(Number);
const before = loadavg()[0];
const cli = fileURLToPath(new URL("../pkg/dist/cli.js", import.meta.url));
const prompt = Array.from({ length: 16 }, (_, i) => 100 + i);

const found = new Map(sizes.map((vocab) => [vocab, { rates: [], memory: null, head: 0 }]));
for (let run = 0; run < repeat; run++) {
  for (const vocab of sizes) {
    const source = synthetic({ shape: `${values.shape},vocab=${vocab}` });
    const model = await load(source, { threads, contextLength: 512 });
    await model.warmup();
    const answer = model.generate(prompt, { temperature: 0, maxTokens: decode + 1, ignoreEos: true });
    const { timings } = await answer.finished;
    const of = found.get(vocab);
    of.rates.push(timings.predictedPerSecond);
    of.memory = model.info.memory;
    of.head = model.info.tensors.find(({ name }) => name === "token_embd.weight").bytes;
    await model.close();
  }
}
for (const [vocab, of] of found) {
  const shape = `${values.shape},vocab=${vocab}`;
  const settings = ["--threads", threads, "--prompt-tokens", prompt.length, "--decode", decode];
  const flags = ["bench", "--shape", shape, ...settings.map(String), "--repeat", "1", "--profile", "--json"];
  const { profile } = JSON.parse(execFileSync(process.execPath, [cli, ...flags], { maxBuffer: 1 << 26 }));
  of.headShare = profile.decode.find(({ operation }) => operation === "head").share;
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
console.log(`${cpus()[0].model}, ${threads} threads, ${values.shape}, ${decode} tokens, median (least–most) of ${repeat} by turns\n`);
console.log("| tokens of the vocabulary | tokens/s | ms a token | the head's share | head, MB | weights, MB | memory, MB |");
console.log("|--:|--:|--:|--:|--:|--:|--:|");
for (const [vocab, { rates, memory, head, headShare }] of found) {
  const [middle, least, most] = [median(rates), Math.min(...rates), Math.max(...rates)];
  const speed = `${middle.toFixed(1)} (${least.toFixed(1)}–${most.toFixed(1)})`;
  const share = `${(100 * headShare).toFixed(1)} %`;
  const cells = [vocab, speed, (1000 / middle).toFixed(1), share, ...[head, memory.weights, memory.total].map(megabytes)];
  console.log(`| ${cells.join(" | ")} |`);
}
const [whole, small] = sizes.map((vocab) => median(found.get(vocab).rates));
if (small) console.log(`\n${(100 * (1 - whole / small)).toFixed(1)} % of a token's time is saved.`);

const date = new Date().toISOString();
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
const settings = { shape: values.shape, threads, repeat, decode };
const rows = [...found].map(([vocab, { rates, memory, head, headShare }]) => {
  return { vocab, tokensPerSecond: rates, headShare, headBytes: head, memory };
});
const file = new URL(`results/${date.slice(0, 10)}-slice.json`, import.meta.url);
writeFileSync(file, `${JSON.stringify({ date, machine, settings, rows })}\n`);
