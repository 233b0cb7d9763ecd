/**
 * Speeds beside native llama.cpp, on the same files in the same run: `LLAMA_BENCH=…/llama-bench node benches/native.mjs [FILE.gguf]…` with Node
 * 22.18 or newer, a built package and a machine that does nothing else. Both take turns, `--rounds` times (3); each is judged by the medians of
 * its rounds, and the ratio by pairs. Prints a table and writes results/DATE-native.json. Without a file it is SmolLM2's, which scripts/smollm2.sh
 * keeps. The models that `bench --shape` makes have no tokenizer, which llama.cpp wants. `--activations int8` is what llama.cpp rounds to.
 *
 *   llama-bench -m FILE -t 2 -p 128 -n 32 -r 3        ternlight bench FILE --threads 2 --prompt-tokens 128 --decode 32 --repeat 3
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { processorName } from "../pkg/src/platform/system.ts";
import { median } from "./median.mjs";

const { values, positionals } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    threads: { type: "string", default: "2" },
    activations: { type: "string", default: "auto" },
  },
  allowPositionals: true,
});
const { LLAMA_BENCH } = process.env;
if (!LLAMA_BENCH) throw new Error("LLAMA_BENCH is to be the path of llama-bench");
const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const cli = path("../pkg/dist/cli.js");
const smollm2 = () => execFileSync("bash", [path("../scripts/smollm2.sh")]).toString().trim().split("\n").at(-1);
const files = positionals.length > 0 ? positionals : [smollm2()];

const run = (program, args) => JSON.parse(execFileSync(program, args, { maxBuffer: 1 << 26, stdio: ["ignore", "pipe", "ignore"] }));

function native(file) {
  const rows = run(LLAMA_BENCH, ["-m", file, "-t", values.threads, "-p", "128", "-n", "32", "-r", "3", "-o", "json"]);
  const rate = (kind) => median(rows.find((row) => row[kind] > 0).samples_ts);
  return { prefill: rate("n_prompt"), decode: rate("n_gen"), build: rows[0].build_commit };
}

function own(file) {
  const given = ["--threads", values.threads, "--activations", values.activations];
  const flags = ["--prompt-tokens", "128", "--decode", "32", "--repeat", "3", "--no-roofline", "--json"];
  const { prefill, decode, engine } = run(process.execPath, [cli, "bench", file, ...given, ...flags]);
  return { prefill: prefill.tokensPerSecond.median, decode: decode.tokensPerSecond.median, engine };
}

const before = loadavg()[0];
const rows = [];
console.log("| file | llama.cpp: prefill, decode | ternlight: prefill, decode | prefill ÷ | decode ÷ |\n|---|---|---|--:|--:|");
for (const file of files) {
  const name = basename(file);
  const rounds = [];
  for (let round = 0; round < Number(values.rounds); round++) rounds.push({ native: native(file), own: own(file) });
  const rate = (of, what) => median(rounds.map((round) => round[of][what]));
  const ratio = (what) => {
    const each = rounds.map((round) => round.own[what] / round.native[what]);
    return { median: median(each), least: Math.min(...each), most: Math.max(...each) };
  };
  const row = { file: name, rounds, prefillRatio: ratio("prefill"), decodeRatio: ratio("decode") };
  rows.push(row);
  const shown = ({ median, least, most }) => `${median.toFixed(2)} (${least.toFixed(2)}–${most.toFixed(2)})`;
  const pair = (of) => `${rate(of, "prefill").toFixed(1)}, ${rate(of, "decode").toFixed(1)}`;
  console.log(`| ${name} | ${pair("native")} | ${pair("own")} | ${shown(row.prefillRatio)} | ${shown(row.decodeRatio)} |`);
}
const date = new Date().toISOString();
const machine = {
  cpu: processorName(cpus()[0].model),
  cores: cpus().length,
  node: process.version,
  loadBefore: before,
  loadAfter: loadavg()[0],
};
writeFileSync(new URL(`results/${date.slice(0, 10)}-native.json`, import.meta.url), `${JSON.stringify({ date, machine, rows })}\n`);
