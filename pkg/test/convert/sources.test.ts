/** One model in many containers: the same new file. And what cannot be converted, with the reason. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { failure } from "../cli/support/ternlight.ts";
import { folderOf, goldenFile, goldenFolder, goldenPath } from "../source/support/models.ts";
import { serveFiles } from "../source/support/server.ts";
import { type Files, json, shardSafetensors, splitGguf } from "../source/support/split.ts";
import { checkGolden } from "../text/support/check.ts";
import { goldenStrings } from "../text/support/golden.ts";
import { contents, convert, folder, I2_S, plain } from "./support/convert.ts";
import { mlxFolder } from "./support/mlx.ts";
import { loadTokenizer } from "./support/tokenizer.ts";

/** By name; hashes, because a difference of megabytes takes minutes to be shown. */
const tensorsOf = ({ tensors }: { tensors: Map<string, { type: number; data: Uint8Array }> }) =>
  new Map([...tensors].map(([name, { type, data }]) => [name, `${type} ${hash(data)}`]));

const hash = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");

test("shards and a server give the file that one folder gives", async (context) => {
  const { "model.safetensors": whole, ...side } = await goldenFolder("models/bitnet_packed");
  const expected = tensorsOf(await convert(context, goldenPath("models/bitnet_packed")));
  const { files, weightMap } = shardSafetensors(whole!, 4);
  const sharded: Files = { ...side, ...files, "model.safetensors.index.json": json({ weight_map: weightMap }) };
  assert.deepEqual(tensorsOf(await convert(context, await folderOf(context, sharded))), expected);
  const { url } = await serveFiles(context, { ...side, "model.safetensors": whole! });
  assert.deepEqual(tensorsOf(await convert(context, url)), expected);
});

test("a split GGUF becomes one", async (context) => {
  const file = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  const into = await folderOf(context, splitGguf(file, "tiny", 3));
  const { tensors, metadata } = await convert(context, path.join(into, "tiny-00001-of-00003.gguf"), "--type", "tq2_0");
  assert.deepEqual(tensorsOf({ tensors }), tensorsOf(contents(file)));
  assert.equal(metadata.get("split.count"), undefined);
  assert.equal(metadata.get("llama.block_count"), 2);
});

test("MLX with one bit: the GGUF that it was made from", async (context) => {
  const into = await folderOf(context, await mlxFolder("qwen3.Q1_0_all", 1));
  const ours = await convert(context, into);
  const expected = contents(await goldenFile("gguf/qwen3.Q1_0_all.gguf"));
  assert.deepEqual(tensorsOf(ours), tensorsOf(expected));
  checkGolden(loadTokenizer(ours.bytes), goldenStrings("tiny_qwen2"));
});

test("MLX with two bits and scales of its own: no type here has room, and that is said", async (context) => {
  const into = await folderOf(context, await mlxFolder("qwen3.Q2_0_all", 2));
  const { message, detail } = await failure(
    1,
    "convert",
    into,
    path.join(await folder(context), "x.gguf"),
    "--type",
    "i2_s",
  );
  assert.match(message, /scales of their own/);
  assert.ok(detail.tensor?.startsWith("model."), detail.tensor);
});

test("I2_S of ARM builds is read as what it is", async (context) => {
  const name = "bitnet_packed.b158.I2_S";
  const x86 = await goldenFile(`gguf/${name}.gguf`);
  const arm = x86.slice();
  for (const { type, data } of contents(arm).tensors.values()) {
    if (type !== I2_S) continue;
    const { codes } = plain({ type, data, dims: [] });
    const view = data.subarray(0, data.length - 4).fill(0);
    codes.forEach((code, i) => {
      const [group, within] = [Math.floor(i / 64), i % 64];
      view[16 * group + (within % 16)]! |= code << (6 - 2 * Math.floor(within / 16));
    });
  }
  const into = await folderOf(context, { "arm.gguf": arm });
  const ours = await convert(context, path.join(into, "arm.gguf"), "--type", "i2_s", "--i2s", "64");
  assert.deepEqual(tensorsOf(ours), tensorsOf(contents(x86)));
});

async function refusal(context: TestContext, source: string, ...flags: string[]) {
  return failure(1, "convert", source, path.join(await folder(context), "x.gguf"), ...flags);
}

test("what cannot be copied exactly is refused by name", async (context) => {
  const cases: [source: string, flags: string[], tensor: string | undefined, reason: RegExp][] = [
    ["models/llama_bf16", [], "model.layers.0.self_attn.q_proj.weight", /not ternary/],
    ["gguf/llama_bf16.Q4_0.gguf", [], "blk.0.attn_q.weight", /not ternary.*codes of 4 bits/],
    ["models/llama_autobitlinear", [], "model.layers.0.self_attn.q_proj.weight", /no type .* fits every matrix/],
    [
      "models/trilm_style",
      ["--type", "i2_s"],
      "model.layers.0.self_attn.q_proj.weight",
      /rows have scales of their own/,
    ],
    ["models/bitnet_packed", ["--type", "q1_0"], "model.layers.0.self_attn.q_proj.weight", /a weight is 0/],
    ["gguf/qwen3.Q1_0_all.gguf", ["--type", "tq2_0"], "blk.0.attn_output.weight", /every matrix fits I2_S, Q1_0/],
    ["models/llama_bitlinear_rmsnorm", [], undefined, /norms on the inputs/],
    ["models/bitnet_packed", ["--embedding", "q8_0", "--head", "f16"], undefined, /the head is the embedding/],
  ];
  for (const [source, flags, tensor, reason] of cases) {
    const { message, detail } = await refusal(context, goldenPath(source), ...flags);
    assert.match(message, reason, source);
    assert.equal(detail.tensor, tensor, source);
  }
});

test("rounded scales are told with their error", async (context) => {
  const { warnings } = await convert(context, goldenPath("models/llama_bitlinear"), "--type", "tq2_0");
  assert.match(warnings.join("\n"), /the scales of 13 tensors were rounded, by 3\.\de-4 of their value at most/);
  const exact = await convert(context, goldenPath("models/bitnet_packed"), "--type", "tq2_0");
  assert.deepEqual(exact.warnings, []);
});

test("a model without a tokenizer goes over without one", async (context) => {
  const { "tokenizer.json": _, ...files } = await goldenFolder("models/bitnet_packed");
  const { warnings, metadata } = await convert(context, await folderOf(context, files));
  assert.match(warnings.join("\n"), /no tokenizer\.json/);
  assert.equal(metadata.get("tokenizer.ggml.model"), undefined);
});

test("further end tokens of generation_config.json go over", async (context) => {
  const files = await goldenFolder("models/bitnet_packed");
  const { bytes } = await convert(context, goldenPath("models/bitnet_packed"));
  const { eos, bos } = loadTokenizer(bytes);
  const generation = json({ eos_token_id: [eos!.id, bos!.id] });
  const both = await convert(context, await folderOf(context, { ...files, "generation_config.json": generation }));
  assert.equal(both.metadata.get("tokenizer.ggml.eos_token_id"), eos!.id);
  assert.equal(both.metadata.get("tokenizer.ggml.eot_token_id"), bos!.id);
});
