/**
 * Whether time and size fall with the layers that `prune` takes away, and whether its choice is better than chance.
 *
 *   node benches/prune.mjs MODEL TEXT --name NAME [--layers 24,18,12,6 | all] [--by influence] [--tokens 256] [--random 10]
 *       [--threads 2] [--repeat 50] [--decode 32]
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
import { Worker } from "node:worker_threads";
import { load } from "../pkg/dist/node.js";
import { prune } from "../pkg/dist/node-quality.js";
import { loadInto, UnstableEngine } from "../pkg/src/api/unstable.ts";
import { owned } from "../pkg/src/platform/node.ts";
import { Gguf } from "../pkg/src/quality/gguf.ts";
import { toBlob } from "../pkg/src/quality/new_gguf.ts";
import { meanLoss } from "../pkg/src/quality/perplexity.ts";
import { withLayers } from "../pkg/src/quality/prune.ts";
import { BlobSource } from "../pkg/src/source/blob.ts";
import { median } from "./median.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    name: { type: "string", default: "model" },
    layers: { type: "string" },
    threads: { type: "string", default: "2" },
    repeat: { type: "string", default: "50" },
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

const script = new URL("../pkg/dist/node-worker.js", import.meta.url);
const outside = { spawnEngine: () => owned(new Worker(script)), base: null };

/** A model in an engine that times each operation. */
async function timed(source) {
  const engine = new UnstableEngine(outside);
  const { info } = await loadInto(engine, outside, source, { contextLength: 512, warmup: false, threads });
  const prompts = [Array.from({ length: 16 }, (_, i) => (31 * i + 7) % info.vocab)];
  return {
    close: () => engine.close(),
    /** Milliseconds of the layers' operations in a token. */
    async ms() {
      const { operations, decode: phase } = await engine.measure({ past: [], prompts, decode, profile: true });
      return operations.reduce((sum, name, i) => sum + (LAYER.includes(name) ? phase.profile[4 * i + 1] : 0), 0) / decode;
    },
  };
}

/** Pairs with the same two loads, of which either may lie better in memory: up to a tenth of a step of the demo model. */
const PAIRS = 5;

/** Times of a row and of the whole model by turns, because a machine is faster or slower for seconds. */
async function pairs(row, whole, cut) {
  const names = { wholeMs: whole, ms: cut };
  for (let load = 0; load < repeat / PAIRS; load++) {
    const models = {};
    const order = load % 2 ? ["ms", "wholeMs"] : ["wholeMs", "ms"];
    for (const name of order) models[name] = await timed(names[name]);
    for (const name of order) await models[name].ms();
    for (let pair = 0; pair < PAIRS; pair++) for (const name of order) row[name].push(await models[name].ms());
    for (const model of Object.values(models)) await model.close();
  }
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
    return { layers, kept, bytes, perplexity, ms: [], wholeMs: [], random: [] };
  });
  progress("random choices");
  for (const row of rows) if (row.layers < before) row.random = await chance(opening, gguf, before, row.layers);
  progress("times");
  const source = async ({ kept }) => toBlob(withLayers(opening, gguf, kept));
  for (const row of repeat > 0 ? rows : []) {
    await pairs(row, await source(rows[0]), await source(row));
    progress(`${row.layers} layers`);
  }

  const off = (share, layers) => `${(100 * (share / (layers / before) - 1)).toFixed(1)} %`;
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const share = ({ ms, wholeMs }) => median(ms.map((one, i) => one / wholeMs[i]));
  console.log(`${cpus()[0].model}, ${threads} threads, ${model}, by ${by}, medians of ${repeat} pairs\n`);
  console.log("| layers | their MB | off their share | their ms | off their share | perplexity | mean of random choices | by logarithms |");
  console.log("|--:|--:|--:|--:|--:|--:|--:|--:|");
  for (const row of rows) {
    const shares = [off(row.bytes / rows[0].bytes, row.layers), repeat > 0 ? off(share(row), row.layers) : ""];
    const chosen = [row.perplexity.toFixed(2), ...[mean(row.random), Math.exp(mean(row.random.map(Math.log)))].map((one) => (row.random.length > 0 ? one.toFixed(2) : ""))];
    const time = repeat > 0 ? median(row.ms).toFixed(3) : "";
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
