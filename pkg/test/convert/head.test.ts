/** `convert --head` writes what the load option `head` makes of the same source. */

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { type Head, load } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { done, failure } from "../cli/support/ternlight.ts";
import { folderOf, goldenPath } from "../source/support/models.ts";
import { convert } from "./support/convert.ts";

const IDS = [1, 5, 9, 2, 30, 77, 4, 12];
const GGML = { q8_0: 8, q6_k: 14, q4_0: 2 } as const;

async function logits(source: string, head: Head = "stored"): Promise<Float32Array[]> {
  const model = await load(source, { threads: 1, head });
  try {
    return await model.logits(IDS, { all: true });
  } finally {
    await model.close();
  }
}

/** Sources whose layers go over with the same logits, and the names of an embedding and a head that are stored in 16 bits. */
const sources: [source: string, type: string, ...large: string[]][] = [
  ["models/bitnet_packed", "tq2_0", "token_embd.weight"],
  ["models/bitnet_online", "i2_s", "token_embd.weight"],
  ["gguf/bitnet_packed.b158.I2_S.gguf", "i2_s", "token_embd.weight"],
  ["gguf/llama_bitlinear.I2_S.gguf", "i2_s", "output.weight", "token_embd.weight"],
  ["gguf/onebitllm_style.F16.gguf", "tq2_0", "token_embd.weight"],
  // Its embedding is Q4_K, its head Q6_K.
  ["gguf/llama_bitlinear.TQ2_0.gguf", "tq2_0"],
];

for (const [source, type, ...large] of sources) {
  test(`${source}: the logits of the file are those of the option`, async (context) => {
    for (const head of ["q8_0", "q6_k", "q4_0"] as const) {
      const { path, tensors, warnings } = await convert(context, goldenPath(source), "--type", type, "--head", head);
      const rounded = [...tensors].filter(([, tensor]) => tensor.type === GGML[head]).map(([name]) => name);
      const smaller = large.length > 0 || head === "q8_0" ? [] : ["output.weight"];
      assert.deepEqual(rounded.sort(), [...large, ...smaller], head);
      const kept = warnings.filter((warning) => warning.includes("stays as it is stored"));
      assert.equal(kept.length, large.length > 0 ? 0 : head === "q8_0" ? 2 : 1, warnings.join("\n"));
      assert.deepEqual(await logits(path), await logits(goldenPath(source), head), head);
    }
  });
}

test("an embedding of another type than the head", async (context) => {
  const source = goldenPath("gguf/llama_bitlinear.I2_S.gguf");
  const types = async (...flags: string[]) => {
    const { tensors } = await convert(context, source, "--type", "i2_s", ...flags);
    return ["token_embd.weight", "output.weight"].map((name) => tensors.get(name)!.type);
  };
  assert.deepEqual(await types("--embedding", "q8_0", "--head", "q4_0"), [8, 2]);
  assert.deepEqual(await types("--embedding", "keep", "--head", "q6_k"), [1, 14]);
  assert.deepEqual(await types("--embedding", "q4_0"), [2, 1]);
  assert.deepEqual(await types("--head", "f16"), [1, 1]);
  assert.deepEqual(await types("--head", "keep"), [1, 1]);
});

test("rows that are no whole blocks are refused before anything is written", async (context) => {
  const model = synthetic({
    shape: "fairy,layers=1,hidden=128,heads=2,head=64,ffn=256",
    type: "i2_s",
    embedding: "f16",
  });
  const into = await folderOf(context, { "narrow.gguf": new Uint8Array(await model.arrayBuffer()) });
  const source = path.join(into, "narrow.gguf");
  for (const [head, found] of [
    ["q6_k", "InvalidArgument"],
    ["q8_0", undefined],
  ] as const) {
    const out = path.join(into, `${head}.gguf`);
    if (!found) {
      await done("convert", source, out, "--type", "i2_s", "--head", head);
      continue;
    }
    const { code, detail } = await failure(1, "convert", source, out, "--type", "i2_s", "--head", head);
    assert.deepEqual([code, detail.option, detail.tensor], [found, "head", "token_embd.weight"]);
    assert.deepEqual(await readdir(into), ["narrow.gguf"]);
  }
});
