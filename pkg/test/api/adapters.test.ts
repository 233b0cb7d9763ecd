/** Adapters through the package: every kind of source, several requests with their own, what is refused. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type AdapterUse, type LoadOptions, load, type Model } from "ternlight";
import { golden } from "../cli/support/golden.ts";
import { failure } from "./support/model.ts";

const file = (name: string) => new URL(`../../../tests/golden/${name}`, import.meta.url);
const PEFT = file("lora/llama_f32.lora/");
const GGUF = file("lora/llama_f32.lora.gguf");
const GREEDY = { temperature: 0, maxTokens: 24, ignoreEos: true } as const;

async function model(context: TestContext, name: string, options: LoadOptions = {}): Promise<Model> {
  const model = await load(file(name), { threads: 1, ...options });
  context.after(() => model.close());
  return model;
}

/** Values of a tensor of a golden file. */
async function floats(name: string, tensor: string): Promise<Float32Array> {
  const { buffer } = new Uint8Array(await readFile(file(name)));
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const [begin, end] = header[tensor].data_offsets;
  return new Float32Array(buffer.slice(8 + length + begin, 8 + length + end));
}

const flat = (rows: readonly Float32Array[]) => rows.flatMap((row) => [...row]);
const farthest = (rows: readonly Float32Array[], expected: Float32Array) =>
  flat(rows).reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i]!)), 0);

test("golden adapters give their logits, from every kind of source", async (context) => {
  const { prompts } = golden("lora/llama_f32.lora/golden.json");
  const bytes = async (name: string) => new Uint8Array(await readFile(new URL(name, PEFT)));
  const named = {
    "adapter_config.json": new Blob([await bytes("adapter_config.json")]),
    "adapter_model.safetensors": await bytes("adapter_model.safetensors"),
  };
  const sources = [
    ["llama_f32.lora", PEFT, "safetensors"],
    ["llama_f32.lora", fileURLToPath(PEFT).replace(/\/$/, ""), "safetensors"],
    ["adapter_model", new URL("adapter_model.safetensors", PEFT), "safetensors"],
    ["what was given", named, "safetensors"],
    ["llama_f32.lora", GGUF, "gguf"],
    ["x", new File([await readFile(GGUF)], "x.gguf"), "gguf"],
    ["adapter", new Uint8Array(await readFile(GGUF)), "gguf"],
  ] as const;
  for (const base of ["models/llama_f32/", "gguf/llama_f32.F32.gguf"]) {
    const loaded = await model(context, base);
    for (const [name, source, format] of sources) {
      const { bytes, ...info } = await loaded.loadAdapter(source);
      assert.deepEqual(info, { name, format, rank: 4, matrices: 9 });
      assert.ok(bytes > 24_000 && bytes < 120_000, String(bytes));
      assert.deepEqual(loaded.adapters, [{ bytes, ...info }]);
      for (const [i, { input_ids }] of prompts.entries()) {
        const expected = await floats("lora/llama_f32.lora/golden.safetensors", `p${i}.logits`);
        const rows = await loaded.logits(input_ids, { all: true, adapters: [{ name }] });
        assert.ok(farthest(rows, expected) < 1e-4, `${name} on ${base}: ${farthest(rows, expected)}`);
        assert.ok(farthest(await loaded.logits(input_ids, { all: true }), expected) > 1);
      }
      await loaded.unloadAdapter(name);
      assert.deepEqual(loaded.adapters, []);
    }
  }
});

test("a ternary model with its adapter", async (context) => {
  const bitnet = await model(context, "models/bitnet_packed/");
  await bitnet.loadAdapter(file("lora/bitnet_packed.lora/"), { name: "own" });
  const { prompts } = golden("lora/bitnet_packed.lora/golden.json");
  const expected = await floats("lora/bitnet_packed.lora/golden.safetensors", "p0.logits");
  const rows = await bitnet.logits(prompts[0].input_ids, { all: true, adapters: [{ name: "own" }] });
  assert.ok(farthest(rows, expected) < 1e-3);
});

test("each request has its own, whoever else runs and in every build", async (context) => {
  const base = golden("models/llama_f32/golden.json");
  const prompt: number[] = base.prompts[1].input_ids;
  const sets: AdapterUse[][] = [
    [],
    [{ name: "a" }],
    [{ name: "a", scale: -0.5 }],
    [{ name: "a" }, { name: "b", scale: 0.3 }],
    [{ name: "b", scale: 0.3 }, { name: "a" }],
  ];
  let expected: number[][] | undefined;
  for (const options of [
    {},
    { flavour: "simd128" },
    { threads: 2 },
    { threads: 2, prefillChunk: 5 },
  ] as LoadOptions[]) {
    const loaded = await model(context, "models/llama_f32/", options);
    const answer = async (adapters: AdapterUse[]) => {
      const { tokens } = await loaded.generate(prompt, { ...GREEDY, adapters }).finished;
      return tokens;
    };
    // While one is loaded another answer is being written.
    const [plain] = await Promise.all([answer([]), loaded.loadAdapter(PEFT, { name: "a" })]);
    await loaded.loadAdapter(GGUF, { name: "b" });
    const together = await Promise.all(sets.map(answer));
    expected ??= await Promise.all(sets.map(answer));
    assert.deepEqual(together, expected);
    for (const set of sets) assert.deepEqual(await answer(set), expected[sets.indexOf(set)]);
    assert.deepEqual(plain, expected[0]);
    assert.deepEqual(expected[3], expected[4]);
    assert.equal(new Set(expected.map(String)).size, 4);
    const { timings } = await loaded.generate([...prompt, ...prompt], { ...GREEDY, adapters: sets[1]! }).finished;
    assert.equal(timings.cachedN, 0, "no blocks of others");
  }
});

test("sessions keep theirs", async (context) => {
  const loaded = await model(context, "models/llama_f32/");
  await loaded.loadAdapter(PEFT, { name: "a" });
  const adapters = [{ name: "a", scale: 2 }];
  const prompt = Array.from({ length: 40 }, (_, i) => 10 + i);
  const tell = async (given: object) =>
    (await loaded.generate([...prompt, 7], { ...GREEDY, ...given }).finished).tokens;
  const [plain, adapted] = [await tell({}), await tell({ adapters })];
  assert.notDeepEqual(plain, adapted);

  const session = loaded.session({ adapters });
  await session.generate(prompt, { ...GREEDY, maxTokens: 0 }).finished;
  const [fork, bytes] = [await session.fork(), await session.save()];
  const restored = await loaded.restoreSession(bytes, { adapters });
  for (const one of [session, fork, restored]) {
    assert.deepEqual((await one.generate([7], GREEDY).finished).tokens, adapted);
  }
  await session.rewind(session.tokens.length - 40);
  assert.deepEqual((await session.generate([7], { ...GREEDY, adapters: [] }).finished).tokens, plain);
  for (const others of [undefined, [], [{ name: "a" }]]) {
    const { code } = await failure(() => loaded.restoreSession(bytes, { adapters: others }));
    assert.equal(code, "WrongModel");
  }

  // Gone by its name, it stays with who has it.
  await loaded.unloadAdapter("a");
  await fork.rewind(fork.tokens.length - 40);
  assert.deepEqual((await fork.generate([7], GREEDY).finished).tokens, adapted);
  assert.equal((await failure(() => loaded.generate(prompt, { adapters }).finished)).code, "InvalidArgument");
});

test("what is wrong is refused, and the model goes on", async (context) => {
  const loaded = await model(context, "models/llama_f32/", { maxAdapterBytes: 100_000 });
  const { bytes } = await loaded.loadAdapter(PEFT, { name: "a" });
  const before = (await loaded.status()).memoryBytes;
  for (const [source, options, code, option] of [
    [PEFT, { name: "a" }, "InvalidArgument", "name"],
    [PEFT, { name: "" }, "InvalidArgument", "name"],
    [PEFT, { nome: "b" }, "InvalidArgument", "nome"],
    [PEFT, { name: "b" }, "OutOfMemory", "maxAdapterBytes"],
    [file("lora/bitnet_packed.lora/"), {}, "ShapeMismatch", undefined],
    [file("gguf/llama_f32.F32.gguf"), {}, "UnsupportedSetting", undefined],
    [file("models/llama_bf16/"), {}, "NotFound", undefined],
    [file("nowhere/"), {}, "NotFound", undefined],
    [new Uint8Array(await readFile(new URL("adapter_model.safetensors", PEFT))), {}, "NotFound", undefined],
    [new Uint8Array(64), {}, "BadMagic", undefined],
  ] as const) {
    const error = await failure(() => loaded.loadAdapter(source as URL, options as object));
    assert.equal(error.code, code, error.message);
    if (option) assert.equal(error.detail.option, option);
  }
  for (const adapters of [[{ name: "b" }], [{ name: "a" }, { name: "a" }], [{ name: "a", scale: 1e9 }], [{}], "a"]) {
    const error = await failure(() => loaded.generate([1], { adapters: adapters as AdapterUse[] }).finished);
    assert.equal(error.code, "InvalidArgument");
    assert.equal(error.detail.option, "adapters");
  }
  assert.equal((await failure(() => loaded.unloadAdapter("b"))).code, "InvalidArgument");
  assert.equal((await failure(() => load(GGUF))).code, "UnsupportedSetting");
  const aborted = AbortSignal.abort(new Error("no"));
  await assert.rejects(loaded.loadAdapter(GGUF, { name: "c", signal: aborted }), /no/);

  // What is unloaded gives its room back, to the allowance and to the memory.
  await loaded.unloadAdapter("a");
  for (let round = 0; round < 40; round++) {
    await loaded.loadAdapter(round % 2 ? PEFT : GGUF, { name: "a" });
    await loaded.logits([1, 2], { adapters: [{ name: "a" }] });
    await loaded.unloadAdapter("a");
  }
  const grown = (await loaded.status()).memoryBytes - before;
  assert.ok(grown < 10 * bytes, `${grown} bytes more after 40 rounds`);
});

test("an adapter whose load was aborted is not there, however late that was", async (context) => {
  const llama = await model(context, "models/llama_f32/");
  let aborted = 0;
  for (let i = 0; i < 24; i++) {
    const control = new AbortController();
    const loading = llama.loadAdapter(GGUF, { name: "late", signal: control.signal });
    const until = performance.now() + (i % 12) / 3;
    while (performance.now() < until) await new Promise((resolve) => setImmediate(resolve));
    control.abort();
    const came = await loading.then(
      () => true,
      () => false,
    );
    if (came) await llama.unloadAdapter("late");
    else aborted++;
    // Where it had come all the same, taking it away is under way before this.
    await llama.status();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await llama.loadAdapter(GGUF, { name: "late" });
    await llama.unloadAdapter("late");
  }
  assert.ok(aborted > 0);
});
