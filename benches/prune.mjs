/**
 * Whether time and size fall with the layers that `prune` takes away, and whether its choice is better than chance.
 *
 *   node benches/prune.mjs MODEL TEXT --name NAME [--layers 24,18,12,6 | all] [--by influence] [--tokens 256] [--random 10]
 *       [--threads 2] [--repeat 5] [--decode 32]
 *
 * prints for each number of layers the bytes of the layers' tensors, the time of the layers' operations in a token, how far both are from
 * the share of layers, and the perplexity of the choice on the held-out half of TEXT beside the mean of so many random choices, and that of
 * their logarithms (0: none). The same is written as results/DATE-prune-NAME.json, which docs/scripts/figures.mjs puts into the guide. MODEL is a GGUF, or a name or
 * folder that `ternlight convert` makes one of. Needs Node 22.18 or newer and a built package; times on a machine that does nothing else.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, openAsBlob, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";
import { prune } from "../pkg/dist/node-quality.js";
import { Gguf } from "../pkg/src/quality/gguf.ts";
import { toBlob } from "../pkg/src/quality/new_gguf.ts";
import { meanLoss } from "../pkg/src/quality/perplexity.ts";
import { withLayers } from "../pkg/src/quality/prune.ts";
import { BlobSource } from "../pkg/src/source/blob.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    name: { type: "string", default: "model" },
    layers: { type: "string" },
    threads: { type: "string", default: "2" },
    repeat: { type: "string", default: "5" },
    decode: { type: "string", default: "32" },
    tokens: { type: "string", default: "256" },
    by: { type: "string", default: "influence" },
    random: { type: "string", default: "10" },
  },
});
const [model, textFile] = positionals;
const { by } = values;
const [threads, repeat, decode, tokens, random] = ["threads", "repeat", "decode", "tokens", "random"].map((name) => Number(values[name]));
const loadBefore = loadavg()[0];
const text = readFileSync(textFile, "utf8");
const cli = fileURLToPath(new URL("../pkg/dist/cli.js", import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), "prune-"));

let seed = 1;
const below = (limit) => {
  seed = (seed * 48_271) % 2_147_483_647;
  return seed % limit;
};

const known = new Map();

/** As `prune` measures its curve: the second half of the text. */
async function perplexityOf(opening, gguf, layers) {
  const key = layers.join();
  if (known.has(key)) return known.get(key);
  const cut = await load(await toBlob(withLayers(opening, gguf, layers)), { contextLength: 512, warmup: false, threads });
  const ids = await cut.tokenize(text, { addSpecial: false });
  const loss = await meanLoss(cut, ids.slice(ids.length >> 1).slice(0, tokens));
  await cut.close();
  known.set(key, Math.exp(loss));
  return known.get(key);
}

async function chance(opening, gguf, before, count) {
  const found = [];
  for (let run = 0; run < random; run++) {
    const left = Array.from({ length: before }, (_, i) => i);
    while (left.length > count) left.splice(below(left.length), 1);
    found.push(await perplexityOf(opening, gguf, left));
  }
  return found;
}

const LAYER = ["qkv", "rope", "attend", "output", "gate_up", "down"];

/** Milliseconds of the layers' operations in a token. */
function timeOf(file) {
  const flags = ["--threads", threads, "--prompt-tokens", "16", "--decode", decode, "--repeat", "1"].map(String);
  const out = execFileSync(process.execPath, [cli, "bench", file, ...flags, "--profile", "--json"]);
  const { profile } = JSON.parse(out);
  return profile.decode.filter(({ operation }) => LAYER.includes(operation)).reduce((sum, row) => sum + row.ms, 0) / decode;
}

try {
  let file = model;
  if (!/\.gguf$/i.test(model)) {
    file = path.join(folder, "whole.gguf");
    execFileSync(process.execPath, [cli, "convert", model, file]);
  }
  const blob = await openAsBlob(file);
  const gguf = await Gguf.open([new BlobSource(blob, path.basename(file))]);
  const opening = { spec: { kind: "blob", blob, name: path.basename(file) } };
  const before = Number(gguf.own("block_count"));
  const every = Array.from({ length: before - 1 }, (_, i) => before - 1 - i);
  const some = Array.from({ length: 4 }, (_, i) => Math.round((before * (4 - i)) / 5));
  const wanted = values.layers === "all" ? every : (values.layers?.split(",").map(Number) ?? some);
  const progress = (what) => console.error(`${new Date().toISOString().slice(11, 19)} ${what}`);

  progress("choosing");
  const { curve } = await prune(file, { targetLayers: Math.min(...wanted), texts: [text], tokens, by, load: { threads } });
  const order = curve.slice(1).map(({ dropped }) => dropped);
  const all = Array.from({ length: before }, (_, i) => i);
  const rows = [before, ...wanted].map((layers) => {
    const kept = all.filter((layer) => !order.slice(0, before - layers).includes(layer));
    const own = gguf.tensors.filter(({ name }) => kept.includes(Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1)));
    const bytes = own.reduce((sum, tensor) => sum + tensor.bytes, 0);
    const { perplexity } = curve.find((point) => point.layers === layers);
    return { layers, kept, bytes, perplexity, ms: [], random: [] };
  });
  progress("random choices");
  for (const row of rows) if (row.layers < before) row.random = await chance(opening, gguf, before, row.layers);
  progress("times");
  for (let run = 0; run < repeat; run++) {
    for (const { layers, kept, ms } of rows) {
      // One at a time: all of them would fill the disk.
      const cut = path.join(folder, "cut.gguf");
      writeFileSync(cut, new Uint8Array(await (await toBlob(withLayers(opening, gguf, kept))).arrayBuffer()));
      ms.push(timeOf(cut));
      if (run === 0) progress(`${layers} layers`);
    }
  }

  const off = (share, layers) => `${(100 * (share / (layers / before) - 1)).toFixed(1)} %`;
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const best = ({ ms }) => Math.min(...ms);
  console.log(`${cpus()[0].model}, ${threads} threads, ${model}, by ${by}, best of ${repeat} by turns\n`);
  console.log("| layers | their MB | off their share | their ms | off their share | perplexity | mean of random choices | by logarithms |");
  console.log("|--:|--:|--:|--:|--:|--:|--:|--:|");
  for (const row of rows) {
    const shares = [off(row.bytes / rows[0].bytes, row.layers), repeat > 0 ? off(best(row) / best(rows[0]), row.layers) : ""];
    const chosen = [row.perplexity.toFixed(2), ...[mean(row.random), Math.exp(mean(row.random.map(Math.log)))].map((one) => (row.random.length > 0 ? one.toFixed(2) : ""))];
    const time = repeat > 0 ? best(row).toFixed(3) : "";
    console.log(`| ${[row.layers, (row.bytes / 1e6).toFixed(2), shares[0], time, shares[1], ...chosen].join(" | ")} |`);
  }
  const date = new Date().toISOString();
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore, loadAfter: loadavg()[0] };
  const settings = { model: path.basename(model), text: path.basename(textFile), by, tokens, random, threads, repeat, decode };
  const report = new URL(`results/${date.slice(0, 10)}-prune-${values.name}.json`, import.meta.url);
  writeFileSync(report, `${JSON.stringify({ date, machine, settings, rows })}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
