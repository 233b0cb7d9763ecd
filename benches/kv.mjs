/**
 * The table of KV codecs in docs/guide/kv-cache.md: what each takes, how fast it decodes and what it does to perplexity.
 *
 *   node benches/kv.mjs TEXT [MODEL@WINDOW...] [--shape 135m] [--threads 2]
 *
 * measures the perplexity of each model on TEXT, window by window, the bytes that 1,000 tokens of it take, and decode speed of the
 * shape behind 512 and 4,096 tokens. Needs a built package.
 */
import { execFileSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { canRun } from "../pkg/dist/node.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { shape: { type: "string", default: "135m" }, threads: { type: "string", default: "2" } },
});
const [text, ...models] = positionals;
const cli = fileURLToPath(new URL("../pkg/dist/cli.js", import.meta.url));

function ternlight(...args) {
  const told = execFileSync(process.execPath, [cli, ...args, "--json"], { maxBuffer: 1 << 26 });
  return JSON.parse(told);
}

/** Megabytes that 1,000 tokens take. */
async function megabytes(model, kv) {
  const kvCacheTokens = 32000;
  return (await canRun(model, { kvCacheType: kv, kvCacheTokens })).needed.kv / kvCacheTokens / 1000;
}

function decode(kv, depth) {
  const settings = ["--kv", kv, "--threads", values.threads, "--ctx", String(depth), "--context", String(depth + 256)];
  const sizes = ["--prompt-tokens", "16", "--decode", "32", "--warmup", "0", "--repeat", "3", "--no-roofline"];
  return ternlight("bench", "--shape", values.shape, ...settings, ...sizes).decode.tokensPerSecond.median;
}

const columns = models.flatMap((model) => [`${path.basename(model)}: MB per 1,000 tokens`, "perplexity"]);
console.log(`| ${["kv", ...columns, `${values.shape}: tokens/s behind 512`, "behind 4,096"].join(" | ")} |`);
console.log(`|---|${"---|".repeat(2 * models.length + 2)}`);
for (const kv of ["f32", "f16", "fp8", "q8", "q4", "q2"]) {
  const cells = [];
  for (const name of models) {
    const at = name.lastIndexOf("@");
    const [model, window] = [name.slice(0, at), name.slice(at + 1)];
    const settings = ["--kv", kv, "--threads", values.threads, "--window", window, "--context", window];
    const { perplexity } = ternlight("perplexity", model, text, ...settings);
    cells.push((await megabytes(model, kv)).toFixed(2), perplexity.toFixed(3));
  }
  const speeds = [512, 4096].map((depth) => decode(kv, depth).toFixed(1));
  console.log(`| ${kv} | ${[...cells, ...speeds].join(" | ")} |`);
}
