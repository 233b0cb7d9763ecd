/**
 * The README's table of KV codecs: what each takes, how fast it decodes and what it does to perplexity.
 *
 *   node benches/kv.mjs TEXT MODEL@WINDOW... [--shape 135m] [--threads 2]
 *
 * measures the perplexity of each model on TEXT, window by window, the bytes that 1,000 tokens of it take, and decode speed of the
 * shape behind 512 and 4,096 tokens. Needs a built package.
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

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

/** Bytes of 1,000 tokens: of a cache so long that one conversation is all that it holds. */
function bytes(model, kv) {
  const context = 1 << 20;
  return (ternlight("inspect", model, "--kv", kv, "--context", String(context)).memory.kv / context) * 1000;
}

function decode(kv, depth) {
  const settings = ["--kv", kv, "--threads", values.threads, "--ctx", String(depth), "--context", String(depth + 256)];
  const sizes = ["--prompt", "16", "--decode", "32", "--warmup", "0", "--repeat", "3", "--no-roofline"];
  return ternlight("bench", "--shape", values.shape, "--type", "tq2_0", ...settings, ...sizes).speed.decode.perSecond;
}

const names = models.map((model) => model.slice(0, model.lastIndexOf("@")).split(/[\\/]/).filter(Boolean).at(-1));
console.log(`| kv | ${names.map((name) => `${name}: MB per 1,000 tokens | perplexity`).join(" | ")} | ${values.shape}: tokens/s at 512 | at 4,096 |`);
console.log(`|---|${"---|".repeat(2 * models.length + 2)}`);
for (const kv of ["f32", "f16", "fp8", "q8", "q4", "q2"]) {
  const cells = models.flatMap((name) => {
    const at = name.lastIndexOf("@");
    const [model, window] = [name.slice(0, at), name.slice(at + 1)];
    const settings = ["--kv", kv, "--threads", values.threads, "--window", window, "--context", window];
    const { perplexity } = ternlight("perplexity", model, text, ...settings);
    return [(bytes(model, kv) / 1e6).toFixed(2), perplexity.toFixed(3)];
  });
  const speeds = [512, 4096].map((depth) => decode(kv, depth).toFixed(1));
  console.log(`| ${kv} | ${[...cells, ...speeds].join(" | ")} |`);
}
