/** `ternlight models`: what stands in the catalogue, and what the command makes of it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { canRun, inspect, load, type MemoryNeeds } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { benchOf } from "../../src/catalogue/fit.ts";
import { type CatalogueModel, type Fact, models } from "../../src/catalogue/models.ts";
import { expectedSpeeds } from "../../src/catalogue/speed.ts";
import { checkOptions } from "../../src/options/options.ts";
import { parseHubName } from "../../src/source/hub_name.ts";
import { done, failure, json, path } from "./support/ternlight.ts";

const FACTS: readonly Fact[] = ["file", "parameters", "bytes", "license", "template", "context", "settings", "shape"];

test("each fact has a source, and what has none is null", () => {
  for (const model of models) {
    for (const fact of FACTS) {
      const source = model.sources[fact];
      assert.equal(source !== undefined, model[fact] !== null, `${model.name}: ${fact}`);
      if (source) assert.match(source, /^https:\/\//, `${model.name}: ${fact}`);
    }
    assert.equal(parseHubName(model.file).name, model.file);
    const settings = Object.entries(model.settings ?? {});
    for (const [option, value] of settings) checkOptions("generate", { [option]: value }, model.name);
  }
  for (const key of ["name", "file"] as const) assert.equal(new Set(models.map((one) => one[key])).size, models.length);
});

const made = (model: CatalogueModel) => synthetic(benchOf(model)!);

test("a file has the bytes that its shape and types come to, and a tokenizer", () => {
  const files = models.filter(({ file, shape, bytes }) => file.endsWith(".gguf") && shape && bytes !== null);
  assert.ok(files.length >= 13, `${files.length} files`);
  for (const model of files) {
    const rest = model.bytes! - made(model).size;
    // Tokens, merges and metadata. Three digits are as good as half of the last one.
    const margin = model.rounded ? 5e6 : 0;
    assert.ok(rest > 2e6 - margin && rest < 12e6 + margin, `${model.name}: ${rest} bytes more`);
  }
  // Models with one tokenizer differ by the names of their tensors alone, and by what they say of a rotation.
  for (const [arch, count, most] of [
    ["qwen3", 6, 5000],
    ["qwen35", 4, 200_000],
  ] as const) {
    const rests = files.filter(({ shape }) => shape!.arch === arch).map((model) => model.bytes! - made(model).size);
    assert.equal(rests.length, count);
    assert.ok(Math.max(...rests) - Math.min(...rests) < most, String(rests));
  }
});

interface Row extends CatalogueModel {
  load: string;
  bench: { shape: string; type: string; embedding: string } | null;
  fit: { ok: boolean | null; by: string | null; needed: MemoryNeeds | null; reason?: string };
}

test("the list says what fits into a memory, by shape or by size", async () => {
  const memory = 1_250_000_000;
  const { available, models: rows }: { available: number; models: Row[] } = await json("models", "--memory", "1250MB");
  assert.equal(available, memory);
  assert.deepEqual(
    rows.map(({ name }) => name),
    models.map(({ name }) => name),
  );
  for (const { name, file, load, bench, fit, bytes, shape } of rows) {
    assert.equal(load, `load("${file}")`);
    assert.equal(bench === null, shape === null, name);
    if (fit.by === "shape") assert.equal(fit.ok, fit.needed!.total <= memory, name);
    else if (fit.by === "size") assert.equal(fit.ok, bytes! < memory, name);
    else assert.deepEqual([fit.ok, fit.needed], [null, null], name);
    assert.equal(fit.by, shape ? "shape" : bytes === null ? null : "size", name);
    assert.equal(fit.ok === false && fit.by === "shape", fit.reason !== undefined, name);
  }
  // Models of 27B are planned too, in two memories where one does not suffice.
  const large = rows.filter(({ name }) => name.includes("27B"));
  assert.deepEqual(
    large.map(({ fit }) => [fit.by, fit.ok]),
    Array.from({ length: 4 }, () => ["shape", false]),
  );
  assert.ok(large.every(({ fit, bytes }) => fit.needed!.weights > 0.9 * bytes! && fit.needed!.states > 1e8));
  const fits = (name: string) => rows.find((row) => row.name === name)!.fit.ok;
  assert.deepEqual([fits("Bonsai 1.7B"), fits("Falcon3 10B Instruct 1.58bit")], [true, false]);
  assert.deepEqual([fits("Falcon-E 1B Instruct"), fits("Falcon-E 1B Base")], [true, null]);

  // What a model takes follows the settings.
  const other: { models: Row[] } = await json("models", "--context", "512", "--head", "q6_k");
  const [usual, small] = [rows, other.models].map((list) => list.find(({ name }) => name === "BitNet b1.58 2B-4T")!);
  assert.ok(small!.fit.needed!.kv < usual!.fit.needed!.kv);
  assert.ok(small!.fit.needed!.weights < usual!.fit.needed!.weights);
});

/** Files of the catalogue's kinds, and what they are called where `bench` makes such. */
const KINDS = [
  ["gguf/qwen3.Q1_0_all.gguf", "qwen3", "q1_0", "q1_0"],
  ["gguf/qwen3.Q2_0_all.gguf", "qwen3", "q2_0", "q2_0"],
  ["gguf/bitnet_packed.b158.I2_S.gguf", "bitnet-b1.58", "i2_s", "f16"],
  ["gguf/llama_bitlinear.I2_S.gguf", "llama", "i2_s", "f16"],
  ["gguf/llama_bitlinear.TQ2_0.gguf", "llama", "tq2_0,token_embd=q4_k", "q6_k"],
  ["models/bitnet_packed/", "bitnet-b1.58", "i2_s", "bf16"],
  ["models/trilm_style/", "llama", "f16", "f16"],
  ["models/onebitllm_style/", "bitnet", "i2_s", "bf16"],
] as const;

test("speeds are estimated from cut models, near what a whole one reaches", async () => {
  const named = (name: string) => models.find((model) => model.name === name)!;
  const [small, large] = [named("Bonsai 1.7B"), named("Bonsai 8B")];
  // Layers of one storage type and a head of another.
  const mixed = { ...named("BitNet b1.58 2B-4T"), name: "cut" };
  mixed.shape = { ...mixed.shape!, layers: 4, vocab: 16384 };
  const told: string[] = [];
  const options = { onSpeed: ({ name }: CatalogueModel) => told.push(name), budgetMs: 60_000 };
  const speeds = await expectedSpeeds([large, mixed, small, named("Falcon-E 1B Base")], load, options);
  assert.deepEqual(told, [small.name, large.name, mixed.name]);
  const ratio = speeds.get(small)! / speeds.get(large)!;
  assert.ok(ratio > 3 && ratio < 7, `${ratio} times as fast`);
  const whole = await load(made(mixed), { contextLength: 64 });
  try {
    const { timings } = await whole.generate([1, 2, 3], { maxTokens: 40, temperature: 0, ignoreEos: true }).finished;
    const reached = (1000 * (timings.predictedN - 1)) / timings.predictedMs;
    // Other programs may have the machine in one of the two moments.
    const off = speeds.get(mixed)! / reached;
    assert.ok(off > 1 / 8 && off < 8, `${speeds.get(mixed)} expected, ${reached} reached`);
  } finally {
    await whole.close();
  }
  const none = await expectedSpeeds([small], load, { budgetMs: -1 });
  assert.equal(none.size, 0, "what the time does not suffice for is left out");
});

test("a shape is planned as a real file of that shape and kind is", async (context) => {
  for (const [file, arch, type, embedding] of KINDS) {
    await context.test(file, async () => {
      const { config, memory } = await inspect(path(`tests/golden/${file}`));
      const { hidden, layers, ffn, vocab } = config;
      const shape = {
        arch,
        hidden,
        layers,
        heads: config.heads,
        kv: config.kvHeads,
        head: config.headSize,
        ffn,
        vocab,
      };
      const model = { ...models[0]!, shape: { ...shape, tied: Number(config.tied), type, embedding } };
      const { needed } = await canRun(made(model), { contextLength: Math.min(config.contextLength, 4096) });
      // Packed matrices in a folder keep their scales beside them: 4 bytes each, 7 a layer.
      const scales = file === "models/bitnet_packed/" ? 4 * 7 * layers : 0;
      assert.deepEqual([needed.weights + scales, needed.kv], [memory.weights, memory.kv]);
    });
  }
});

test("as text each model has one line that ends with how it is loaded", async () => {
  const { stdout, stderr } = await done("models", "--memory", "1250MB");
  assert.equal(stderr, "");
  const lines = stdout.split("\n");
  for (const { name, file } of models) {
    const line = lines.find((one) => one.startsWith(`${name} `) && one.endsWith(`load("${file}")`));
    assert.ok(line, name);
    assert.match(line, / (fits|does not fit|not known)( \*)? /);
  }
  assert.match(lines[0]!, /^model +parameters +file +takes +in 1\.25 GB +license +context +chat +settings +line$/);
  assert.match(lines.find((line) => line.startsWith("Bonsai 4B "))!, / 32768 +ChatML +temperature 0\.5, topK 20, /);
  assert.match(stdout, /^\* its shape is not known here: its file's size alone is compared/m);
  // With --speed, of those that fit; here TriLM 99M.
  const estimated = await done("models", "--memory", "500MB", "--speed");
  const [head = "", ...others] = estimated.stdout.split("\n");
  assert.match(head, / +in 500 MB +tokens\/s +license +context/);
  assert.match(others.find((line) => line.startsWith("TriLM 99M "))!, / fits +about [\d.]+ +Apache-2\.0 /);
  assert.match(others.find((line) => line.startsWith("Bonsai 8B "))!, / does not fit +Apache-2\.0 /);
  assert.match(estimated.stdout, /^tokens\/s: an estimate/m);
  const { message } = await failure(2, "models", "bonsai");
  assert.match(message, /unexpected argument "bonsai"/);
});
