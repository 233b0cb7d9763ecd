/** Conversions against the files that llama.cpp's and Microsoft's converters made of the same models, and against the source. */

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { inspect } from "ternlight";
import { failure } from "../cli/support/ternlight.ts";
import { goldenFile, goldenPath, logitsOf } from "../source/support/models.ts";
import { checkGolden } from "../text/support/check.ts";
import { goldenStrings } from "../text/support/golden.ts";
import { type Converted, contents, convert, folder, I2_S, plain, type Tensor } from "./support/convert.ts";
import { loadTokenizer } from "./support/tokenizer.ts";

const same = (a: Tensor, b: Tensor) => a.type === b.type && Buffer.compare(a.data, b.data) === 0;

async function golden(name: string): Promise<Map<string, Tensor>> {
  return contents(await goldenFile(`gguf/${name}.gguf`)).tensors;
}

/** Names of tensors that are not the same bytes. */
function differing(ours: Converted, theirs: Map<string, Tensor>): string[] {
  assert.deepEqual([...ours.tensors.keys()].sort(), [...theirs.keys()].sort());
  return [...theirs].filter(([name, tensor]) => !same(ours.tensors.get(name)!, tensor)).map(([name]) => name);
}

const EMBEDDING = ["token_embd.weight"];
const BOTH = ["output.weight", "token_embd.weight"];

const theirs: [model: string, file: string, flags: string[], besides: string[]][] = [
  ["llama_bitlinear", "llama_bitlinear.TQ2_0", ["--type", "tq2_0"], BOTH],
  ["llama_bitlinear", "llama_bitlinear.TQ1_0", ["--type", "tq1_0"], BOTH],
  ["llama_bitlinear", "llama_bitlinear.I2_S", ["--type", "i2_s", "--embedding", "f16", "--head", "f16"], []],
  ["onebitllm_style", "onebitllm_style.TQ2_0", ["--embedding", "q6_k"], []],
  ["onebitllm_style", "onebitllm_style.TQ1_0", ["--type", "tq1_0", "--embedding", "q6_k"], []],
  ["trilm_style", "trilm_style.TQ2_0", ["--type", "tq2_0", "--head", "q6_k"], EMBEDDING],
  ["trilm_style", "trilm_style.TQ1_0", ["--type", "tq1_0", "--head", "q6_k"], EMBEDDING],
  ["bitnet_packed", "bitnet_packed.b158.I2_S", ["--type", "i2_s", "--embedding", "f16"], []],
];

for (const [model, file, flags, besides] of theirs) {
  test(`${model} ${flags.join(" ")}: the bytes of ${file}`, async (context) => {
    const ours = await convert(context, goldenPath(`models/${model}`), ...flags);
    // Theirs round the embedding to a type that ours does not write.
    assert.deepEqual(differing(ours, await golden(file)).sort(), besides);
    for (const key of ["general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.bos_token_id"]) {
      assert.equal(ours.metadata.get(key), contents(await goldenFile(`gguf/${file}.gguf`)).metadata.get(key), key);
    }
  });
}

test("a rotation is kept: its keys, and its matrices", async (context) => {
  const source = goldenPath("gguf/qwen35_odd.hadamard.F32.gguf");
  const { path, bytes, metadata, tensors } = await convert(
    context,
    source,
    "--type",
    "keep",
    "--embedding",
    "keep",
    "--head",
    "keep",
  );
  const key = (name: string) => metadata.get(`prism.hadamard.${name}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const list = (name: string) => metadata.array(`prism.hadamard.${name}`)!;
  const ints = (name: string) => {
    const { offset, count } = list(name);
    return Array.from({ length: count }, (_, i) => view.getInt32(offset + 4 * i, true));
  };
  const texts = (name: string) => {
    let at = list(name).offset;
    return Array.from({ length: list(name).count }, () => {
      const length = Number(view.getBigUint64(at, true));
      at += 8 + length;
      return new TextDecoder().decode(bytes.subarray(at - length, at));
    });
  };
  for (const [name, value] of Object.entries({
    version: 1,
    block_size: 8,
    transform: "normalized-sylvester-walsh-hadamard",
    axis: "input-last-dimension",
    sign_mode: "explicit",
    gdn_v_grouped: true,
  })) {
    assert.deepEqual(key(name), value, name);
  }
  assert.deepEqual(ints("sign_widths"), [96, 120, 192, 200]);
  assert.deepEqual(texts("inverse_weight_names"), ["token_embd.weight"]);
  const signs = ints("sign_values");
  assert.equal(signs.length, 96 + 120 + 192 + 200);
  assert.deepEqual(signs.slice(0, 12), [1, 1, 1, -1, 1, 1, 1, -1, 1, -1, 1, 1]);
  const names = texts("weight_names");
  // Four gated delta nets with six matrices, one layer that attends with seven, and the head.
  assert.equal(names.length, 4 * 6 + 7 + 1);
  assert.deepEqual(names.slice(0, 3), ["output.weight", "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight"]);
  assert.ok(names.every((name) => tensors.has(name)));
  const rotation = { transform: "hadamard", block: 8, signs: true, matrices: 32, embedding: true };
  for (const file of [source, path]) assert.deepEqual((await inspect(file)).rotation, rotation);
});

test("masters: the scale of I2_S is the one that ternarising divides by, but for the last bits", async (context) => {
  const ours = await convert(context, goldenPath("models/onebitllm_style"), "--type", "i2_s", "--embedding", "f16");
  const expected = await golden("onebitllm_style.I2_S");
  for (const name of differing(ours, expected)) {
    const [a, b] = [plain(ours.tensors.get(name)!), plain(expected.get(name)!)];
    assert.ok(Buffer.compare(a.codes, b.codes) === 0, name);
    assert.ok(Math.abs(a.scales[0]! / b.scales[0]! - 1) <= 2 ** -22, name);
  }
});

test("packed Hugging Face rows: every code, unpacked by hand", async (context) => {
  const file = await goldenFile("models/bitnet_packed/model.safetensors");
  const length = Number(new DataView(file.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  const { tensors } = await convert(context, goldenPath("models/bitnet_packed"), "--type", "tq1_0");
  const pairs = { "self_attn.k_proj": "attn_k", "mlp.down_proj": "ffn_down", "mlp.gate_proj": "ffn_gate" };
  for (const [theirs, ours] of Object.entries(pairs)) {
    const { shape, data_offsets } = header[`model.layers.1.${theirs}.weight`];
    const packed = file.subarray(8 + length + data_offsets[0], 8 + length + data_offsets[1]);
    const expected = new Uint8Array(4 * packed.length);
    const quarter = shape[0] * shape[1];
    packed.forEach((byte, at) => {
      for (let part = 0; part < 4; part++) expected[part * quarter + at] = (byte >> (2 * part)) & 3;
    });
    assert.ok(Buffer.compare(plain(tensors.get(`blk.1.${ours}.weight`)!).codes, expected) === 0, ours);
  }
});

const ternary = ["llama_bitlinear", "onebitllm_style", "trilm_style"].flatMap((model) =>
  ["TQ1_0", "TQ2_0", "I2_S"].map((type) => `${model}.${type}`),
);

for (const name of ternary.filter((name) => name !== "trilm_style.I2_S")) {
  test(`${name} by way of the other types: the same codes, and the same bytes where it comes from halves`, async (context) => {
    const first = contents(await goldenFile(`gguf/${name}.gguf`)).tensors;
    const own = name.split(".")[1]!.toLowerCase();
    // TriLM's scales differ from row to row.
    const others = ["tq1_0", "tq2_0", ...(name.startsWith("trilm") ? [] : ["i2_s"])].filter((type) => type !== own);
    for (const type of others) {
      const there = await convert(context, goldenPath(`gguf/${name}.gguf`), "--type", type);
      const back = await convert(context, there.path, "--type", own);
      for (const [tensor, before] of first) {
        const after = back.tensors.get(tensor)!;
        if (before.type !== I2_S) assert.ok(same(after, before), `${type} ${tensor}`);
        else assert.ok(Buffer.compare(plain(after).codes, plain(before).codes) === 0, `${type} ${tensor}`);
      }
      assert.deepEqual([...back.tensors.keys()], [...first.keys()].sort(byOrder(back)));
    }
  });
}

const byOrder = ({ tensors }: Converted) => {
  const order = [...tensors.keys()];
  return (a: string, b: string) => order.indexOf(a) - order.indexOf(b);
};

for (const name of ["qwen3.Q1_0_all", "qwen3.Q1_0"]) {
  test(`${name} stays what it is`, async (context) => {
    const ours = await convert(context, goldenPath(`gguf/${name}.gguf`));
    assert.deepEqual(differing(ours, await golden(name)), []);
    assert.deepEqual(ours.warnings, []);
    assert.deepEqual(await logitsOf(ours.path), await logitsOf(goldenPath(`gguf/${name}.gguf`)));
  });
}

/** Every conversion that takes nothing away and leaves the order of sums as it is. */
const exact: [source: string, ...flags: string[]][] = [
  ["models/bitnet_packed", "--type", "tq2_0"],
  ["models/bitnet_packed", "--type", "tq1_0"],
  ["models/bitnet_packed", "--type", "i2_s"],
  ["models/bitnet_online", "--type", "i2_s"],
  ["models/onebitllm_style", "--type", "i2_s"],
  ["gguf/llama_bitlinear.TQ2_0.gguf", "--type", "tq1_0"],
  ["gguf/llama_bitlinear.TQ2_0.gguf", "--type", "i2_s"],
  ["gguf/trilm_style.TQ1_0.gguf", "--type", "tq2_0"],
  ["gguf/bitnet_packed.b158.I2_S.gguf", "--type", "i2_s"],
  ["gguf/onebitllm_style.F16.gguf", "--type", "tq2_0"],
  ["models/qwen3", "--type", "keep"],
  ["gguf/llama_bitlinear.TQ2_0.gguf", "--type", "keep"],
];

for (const [source, ...flags] of exact) {
  test(`${source} ${flags.join(" ")}: the same logits`, async (context) => {
    const { path } = await convert(context, goldenPath(source), ...flags);
    assert.deepEqual(await logitsOf(path), await logitsOf(goldenPath(source)));
  });
}

/** Of llama, whose rows of queries and keys move, so that sums are made in another order. */
for (const [source, type] of [
  ["models/llama_bf16", 30],
  ["models/llama_f32", 0],
] as const) {
  test(`${source} --type keep: the bytes of its floats, and nearly the same logits`, async (context) => {
    const ours = await convert(context, goldenPath(source), "--type", "keep");
    for (const [name, tensor] of ours.tensors)
      if (/blk.*(attn_[qkvo]|ffn_\w+)\.weight/.test(name) && !/norm/.test(name)) assert.equal(tensor.type, type, name);
    assert.equal(ours.metadata.get("general.file_type"), undefined);
    const [after, before] = [await logitsOf(ours.path), await logitsOf(goldenPath(source))];
    const worst = Math.max(...before.flatMap((row, i) => [...row].map((logit, j) => Math.abs(logit - after[i]![j]!))));
    assert.ok(worst < 1e-4, `${worst}`);
  });
}

test("codes with a scale beside them, and latent weights, have no type to keep", async (context) => {
  const out = path.join(await folder(context), "out.gguf");
  for (const model of ["bitnet_packed", "bitnet_online"]) {
    const { code, detail } = await failure(1, "convert", goldenPath(`models/${model}`), out, "--type", "keep");
    assert.equal(code, "UnsupportedSetting");
    assert.deepEqual([detail.option, detail.found], ["type", "keep"]);
    assert.match(detail.tensor!, /q_proj/);
  }
});

test("a rounded embedding is near, and says nothing else", async (context) => {
  const source = goldenPath("models/bitnet_packed");
  const expected = await logitsOf(source);
  for (const [type, most] of [
    ["f16", 0.3],
    ["q8_0", 0.8],
    ["q6_k", 1.5],
    ["q4_0", 6],
  ] as const) {
    const { path, tensors } = await convert(context, source, "--embedding", type);
    assert.equal(tensors.get("token_embd.weight")!.type, { f16: 1, q8_0: 8, q6_k: 14, q4_0: 2 }[type]);
    const found = await logitsOf(path);
    const error = Math.max(
      ...expected.flatMap((row, i) => [...row].map((logit, j) => Math.abs(logit - found[i]![j]!))),
    );
    context.diagnostic(`${type}: logits within ${error.toFixed(3)}`);
    assert.ok(error > 0 && error < most, `${type}: ${error}`);
  }
});

const tokenizers = {
  tiny_llama3: "models/bitnet_packed",
  tiny_smollm: "models/trilm_style",
  tiny_llama2: "models/onebitllm_style",
};

for (const [name, model] of Object.entries(tokenizers)) {
  test(`the tokenizer of ${model}: all golden strings from the written file`, async (context) => {
    const { bytes } = await convert(context, goldenPath(model));
    const tokenizer = loadTokenizer(bytes);
    checkGolden(tokenizer, goldenStrings(name));
    assert.deepEqual(tokenizer.warnings, []);
  });
}

test("a GGUF's metadata go over as they are, its own type and alignment apart", async (context) => {
  const before = contents(await goldenFile("gguf/onebitllm_style.TQ2_0.gguf")).metadata;
  const { metadata: after } = await convert(context, goldenPath("gguf/onebitllm_style.TQ2_0.gguf"), "--type", "i2_s");
  for (const key of ["bitnet.block_count", "bitnet.attention.layer_norm_rms_epsilon", "tokenizer.chat_template"]) {
    assert.equal(after.get(key), before.get(key), key);
  }
  for (const key of ["tokenizer.ggml.tokens", "tokenizer.ggml.scores"]) {
    const array = (file: typeof before) => {
      const { offset, length } = file.array(key)!;
      return file.header.subarray(offset, offset + length);
    };
    assert.deepEqual(Buffer.from(array(after)), Buffer.from(array(before)), key);
  }
  assert.equal(after.get("general.file_type"), 40);
});
