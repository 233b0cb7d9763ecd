import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { stat } from "node:fs/promises";
import { test } from "node:test";
import { serveNoting } from "./support/server.ts";
import { DEMO, done, failure, json, path } from "./support/ternlight.ts";

const gguf = (name: string) => path(`tests/golden/gguf/${name}`);

test("the demo model, weights included", async () => {
  const about = await json("inspect", DEMO);
  assert.deepEqual(Object.keys(about).sort(), [
    "activations",
    "architecture",
    "bitsPerWeight",
    "config",
    "format",
    "heads",
    "kinds",
    "memory",
    "name",
    "parameters",
    "template",
    "tensors",
    "ternaryPacking",
    "tokenizer",
    "warnings",
  ]);
  assert.equal(about.format, "safetensors");
  assert.equal(about.architecture, "BitNetForCausalLM");
  assert.equal(about.parameters, 5776640);
  assert.deepEqual(about.kinds, { BF16: 68, U8x4: 42 });
  assert.equal(about.activations, "int8");
  assert.equal(about.template, null);
  assert.deepEqual(about.warnings, []);
  const { memory } = about;
  assert.equal(memory.total, memory.weights + memory.kv + memory.scratch);
  // The bits of each weight come from the file's own length; its header is not a weight.
  const { size } = await stat(path(`pkg/models/${DEMO}/model.safetensors`));
  assert.ok(Math.abs((about.bitsPerWeight * about.parameters) / 8 / size - 1) < 0.01);
  // Its README says 38 % zeros.
  const ternary = about.tensors.filter(({ type }: { type: string }) => type === "U8x4");
  assert.equal(ternary.length, 42);
  const values = ({ shape: [rows, cols] }: { shape: [number, number] }) => rows * cols;
  const sum = (of: (tensor: never) => number) => ternary.reduce((total: number, one: never) => total + of(one), 0);
  const zeros = sum((tensor: { shape: [number, number]; zeroShare: number }) => tensor.zeroShare * values(tensor));
  assert.ok(Math.abs(zeros / sum(values) - 0.38) < 0.01);
  const q = about.tensors.find(({ name }: { name: string }) => name === "model.layers.0.self_attn.q_proj.weight");
  assert.deepEqual(
    { ...q, zeroShare: 0 },
    {
      ...{ name: q.name, type: "U8x4", shape: [256, 256], bytes: 16384, scale: "tensor", zeroShare: 0 },
      // Two bits a weight, and a float for each row.
      ...{ bits: 2, zeroPoint: 1, memoryBytes: (256 * 256) / 4 + 4 * 256, paddingBytes: 0 },
    },
  );
});

test("each tensor tells the bits of its codes, what stands for zero, and what fills its tiles", async () => {
  // Of types whose blocks are groups of one scale: values and bytes of a block as it is packed, bits of a code, the zero point.
  const packed: Record<string, [block: number, bytes: number, bits: number, zeroPoint: number | undefined]> = {
    F32: [2, 8, 32, undefined],
    F16: [2, 4, 16, undefined],
    Q1_0: [128, 18, 1, 0.5],
    Q2_0: [64, 18, 2, 1],
    Q4_0: [32, 18, 4, 8],
    Q4_1: [32, 20, 4, undefined],
    Q8_0: [32, 34, 8, 0],
    // Super-blocks have a float and bytes for the scales: larger than in the file.
    Q6_K: [256, 192 + 4 + 16, 6, 32],
    Q4_K: [256, 128 + 2 * (4 + 8), 4, undefined],
  };
  const seen = new Set<string>();
  let padded = 0;
  for (const name of readdirSync(gguf("")).filter((name) => name.endsWith(".gguf"))) {
    for (const tensor of (await json("inspect", gguf(name), "--no-weights", "--no-repack")).tensors) {
      const { type, shape, bits, zeroPoint, memoryBytes, paddingBytes } = tensor;
      const about = packed[type];
      if (!about || shape.length !== 2) continue;
      seen.add(type);
      const [block, bytes, ...expected] = about;
      assert.deepEqual([bits, zeroPoint], expected, `${name} ${tensor.name}`);
      const [rows, cols] = shape;
      const [tiled, row] = [32 * Math.ceil(rows / 32), bytes * Math.ceil(cols / block)];
      assert.equal(memoryBytes, tiled * row, `${name} ${tensor.name}`);
      const columns = (rows * (block * Math.ceil(cols / block) - cols) * bits) / 8;
      assert.equal(paddingBytes, (tiled - rows) * row + columns, `${name} ${tensor.name}`);
      padded += paddingBytes;
    }
  }
  assert.ok(padded > 0);
  assert.deepEqual([...seen].sort(), Object.keys(packed).sort());
  const { stdout } = await done("inspect", gguf("llama_f32.F32.gguf"));
  assert.match(
    stdout,
    /^ {2}name +layers +type +shape +scale per +size +code bits +zero point +in memory +padding +zeros$/m,
  );
  assert.match(stdout, /ffn_up\.weight .* 32 +147 kB +8\.3 %/);
});

test("every golden model is described, from its header and with its weights", async () => {
  const kinds = new Set<string>();
  for (const name of readdirSync(gguf("")).filter((name) => name.endsWith(".gguf"))) {
    const header = await json("inspect", gguf(name), "--no-weights");
    const whole = await json("inspect", gguf(name));
    for (const kind of Object.keys(header.kinds)) kinds.add(kind);
    const known = (about: typeof whole) => about.tensors.filter((tensor: object) => "zeroShare" in tensor).length;
    assert.equal(known(header), 0, name);
    assert.ok(known(whole) > 0, name);
    for (const { name: tensor, zeroShare = 0 } of whole.tensors) {
      assert.ok(zeroShare >= 0 && zeroShare < 1, `${name} ${tensor} ${zeroShare}`);
    }
    assert.deepEqual(
      header.tensors.map(({ name }: { name: string }) => name),
      whole.tensors.map(({ name }: { name: string }) => name),
    );
    assert.equal(header.format, "gguf");
  }
  const expected = ["F16", "F32", "I2_S", "Q1_0", "Q2_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0", "TQ1_0", "TQ2_0"];
  assert.deepEqual([...kinds].sort(), expected);
});

test("the same ternary weights have the same zeros in every format", async () => {
  const shares = async (name: string) =>
    (await json("inspect", gguf(name))).tensors
      .filter(({ name }: { name: string }) => /blk\.\d+\.(attn|ffn)_\w+\.weight/.test(name) && !/norm/.test(name))
      .map(({ name, zeroShare }: { name: string; zeroShare: number }) => [name, zeroShare]);
  const tq2 = await shares("onebitllm_style.TQ2_0.gguf");
  assert.equal(tq2.length, 14);
  assert.deepEqual(await shares("onebitllm_style.TQ1_0.gguf"), tq2);
});

test("a URL is read by ranges, and no further than its header", async (context) => {
  const { url, asked } = await serveNoting(context, path(""));
  const name = "onebitllm_style.F16.gguf";
  const address = new URL(`tests/golden/gguf/${name}`, url).href;
  const remote = await json("inspect", address);
  assert.deepEqual(remote, await json("inspect", gguf(name), "--no-weights"));
  const { size } = await stat(gguf(name));
  assert.ok(asked.length > 0);
  for (const { range } of asked) assert.ok(range && range[1] < size / 2, JSON.stringify(asked));
  const whole = await json("inspect", address, "--weights");
  assert.deepEqual(whole, await json("inspect", gguf(name)));

  const folder = await json("inspect", new URL(`pkg/models/${DEMO}/`, url).href);
  assert.deepEqual(folder, await json("inspect", DEMO, "--no-weights"));
  const { code } = await failure(1, "inspect", new URL("missing.gguf", url).href);
  assert.equal(code, "NotFound");
});

test("--strict says whether the layers hold nothing else, and what it decided on", async () => {
  const cases: [string, string, string, string | null][] = [
    [DEMO, "ternary", "header", null],
    [DEMO, "1bit", "weights", "model.layers.0.self_attn.q_proj.weight"],
    [gguf("qwen3.Q1_0.gguf"), "1bit", "header", null],
    [gguf("qwen3.Q1_0.gguf"), "ternary", "header", null],
    [gguf("onebitllm_style.TQ1_0.gguf"), "ternary", "header", null],
    [gguf("qwen3.Q8_0.gguf"), "ternary", "header", "blk.0.attn_q.weight"],
    [gguf("llama_f32.F32.gguf"), "1bit", "header", "blk.0.attn_q.weight"],
  ];
  for (const [model, kind, decidedOn, tensor] of cases) {
    if (tensor === null) {
      const { strict } = await json("inspect", model, "--strict", kind);
      assert.deepEqual(strict, { kind, decidedOn });
      continue;
    }
    const { code, message, detail } = await failure(1, "inspect", model, "--strict", kind);
    assert.equal(code, "NotStrict");
    assert.equal(detail.tensor, tensor);
    assert.equal(detail.decidedOn, decidedOn);
    assert.ok(message.includes(decidedOn), message);
  }
  const header = await failure(1, "inspect", DEMO, "--strict", "1bit", "--no-weights");
  assert.equal(header.detail.decidedOn, "header");
});

test("for people: facts, types and tensors", async () => {
  const { stdout } = await done("inspect", DEMO);
  for (const fact of ["5.78 M", "BitNetForCausalLM", "byte-level BPE, 4096 tokens", "U8x4", "memory to run"]) {
    assert.ok(stdout.includes(fact), fact);
  }
  const { stdout: i2s } = await done("inspect", gguf("llama_bitlinear.I2_S.gguf"));
  assert.match(i2s, /^Warnings\n {2}I2_S does not say/m);
});
