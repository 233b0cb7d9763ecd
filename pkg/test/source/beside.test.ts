/** A GGUF's text: from its own header, from the files beside it where that says nothing, and with what is known to be wrong said. */

import assert from "node:assert/strict";
import path from "node:path";
import { before, test } from "node:test";
import { inspect, load, type ModelSource } from "ternlight";
import { blobs, dropped, folderOf, goldenFile, goldenFolder } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import type { Files } from "./support/split.ts";

const text = "def add(a, b):\n    return a + b  # 2024 Größe 你好 🚀";
let files: Files = {};
let expected: number[] = [];

/** A header in which nobody finds a word on tokenizers. */
function mute(file: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const latin1 = Buffer.from(file).toString("latin1").replaceAll("tokenizer.", "something.");
  return new Uint8Array(Buffer.from(latin1, "latin1"));
}

before(async () => {
  const { "tokenizer.json": tokenizer, "tokenizer_config.json": config } = await goldenFolder("models/llama_bitlinear");
  const gguf = mute(await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf"));
  files = { "tiny.gguf": gguf, "tokenizer.json": tokenizer!, "tokenizer_config.json": config! };
  expected = await tokenized(blobs(await goldenFolder("models/llama_bitlinear")));
});

async function tokenized(source: ModelSource): Promise<number[]> {
  const model = await load(source, { threads: 1 });
  try {
    return await model.tokenize(text);
  } finally {
    await model.close();
  }
}

test("a GGUF without a tokenizer takes the one beside it", async (context) => {
  const folder = await folderOf(context, files);
  const { url } = await serveFiles(context, files);
  const sources = [path.join(folder, "tiny.gguf"), folder, blobs(files), dropped(files), `${url}tiny.gguf`];
  for (const source of sources) assert.deepEqual(await tokenized(source), expected);
});

test("without one anywhere it runs token ids alone, and says so", async (context) => {
  const { "tiny.gguf": gguf } = files as { "tiny.gguf": Uint8Array<ArrayBuffer> };
  const folder = await folderOf(context, { "tiny.gguf": gguf });
  for (const source of [new Blob([gguf]), path.join(folder, "tiny.gguf")]) {
    const { tokenizer, warnings } = await inspect(source);
    assert.equal(tokenizer, null);
    assert.deepEqual(warnings, ["the model has no tokenizer: prompts must be token ids"]);
    await assert.rejects(tokenized(source), { code: "MissingTokenizer" });
  }
});

test("a tokenizer of its own goes before one beside it, which is not asked for", async (context) => {
  const own = { "tiny.gguf": await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf"), "tokenizer.json": new Uint8Array(9) };
  const { url, asked } = await serveFiles(context, own);
  assert.deepEqual(await tokenized(`${url}tiny.gguf`), expected);
  assert.ok(asked.every(({ path }) => path === "tiny.gguf"));
});

test("what is odd in the published BitNet 2B-4T file is told", async () => {
  const { warnings, template, i2s } = await inspect(new Blob([await goldenFile("gguf/bitnet_packed.b158.I2_S.gguf")]), {
    weights: true,
  });
  const about = (part: string) => warnings.filter((warning) => warning.includes(part)).length;
  assert.equal(about("tokenizer.ggml.pre is missing"), 1);
  assert.equal(about("right where the model should begin"), 1);
  assert.equal(about("how its codes are interleaved"), 1);
  assert.equal(warnings.length, 3);
  assert.match(template?.source ?? "", /BitNet b1.58 2B-4T/);
  assert.deepEqual(i2s, { interleave: "128", from: "default" });
});
