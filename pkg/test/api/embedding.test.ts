/** Models that were trained to embed: their state at the last token, against what transformers computes. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { load, type Model } from "ternlight";
import { parseGguf } from "../text/support/gguf_file.ts";

const golden = (name: string) => readFile(new URL(`../../../tests/golden/${name}`, import.meta.url));
const PROMPT = "The quick brown fox";

/** The states behind the output norm at each token of the prompt, as transformers computes them. */
async function expected(ids: number): Promise<Float32Array[]> {
  const file = await golden("models/qwen3/golden.safetensors");
  const length = Number(file.readBigUInt64LE(0));
  const { shape, data_offsets: place } = JSON.parse(file.toString("utf8", 8, 8 + length))["p0.hidden.2"];
  assert.equal(shape[0], ids);
  const bytes = file.subarray(8 + length + place[0], 8 + length + place[1]);
  const values = new Float32Array(Uint8Array.from(bytes).buffer);
  return Array.from({ length: ids }, (_, i) => values.subarray(i * shape[1], (i + 1) * shape[1]));
}

const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
const cosine = (a: Float32Array, b: Float32Array) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

/**
 * A Hugging Face folder as sentence embedders come: the model without its head, although its config may still say that it has one, and a
 * tokenizer that ends each text.
 */
async function embedder(): Promise<Record<string, Uint8Array<ArrayBuffer>>> {
  const [weights, tokenizer, config] = await Promise.all(
    ["model.safetensors", "tokenizer.json", "config.json"].map((name) => golden(`models/qwen3/${name}`)),
  );
  const length = Number(weights!.readBigUInt64LE(0));
  const header = weights!.toString("utf8", 8, 8 + length).replaceAll('"model.', '"');
  const whole = Buffer.from(header.padEnd(length));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(length));
  const parsed = JSON.parse(tokenizer!.toString());
  const token = "<|endoftext|>";
  const id = parsed.added_tokens.find(({ content }: { content: string }) => content === token).id;
  const single = [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: token, type_id: 0 } }];
  const template = {
    type: "TemplateProcessing",
    single,
    pair: [...single, { Sequence: { id: "B", type_id: 0 } }],
    special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } },
  };
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false };
  parsed.post_processor = { type: "Sequence", processors: [bytes, template] };
  return {
    "config.json": Buffer.from(
      JSON.stringify({ ...JSON.parse(config!.toString()), architectures: ["Qwen3Model"], tie_word_embeddings: false }),
    ),
    "model.safetensors": Uint8Array.from(Buffer.concat([size, whole, weights!.subarray(8 + length)])),
    "tokenizer.json": Uint8Array.from(Buffer.from(JSON.stringify(parsed))),
  };
}

/** The same file with further scalars in its header. What they take is filled up to whole lines of 32 bytes, as the data need it. */
function withKeys(file: Uint8Array, keys: Record<string, number | boolean>): Uint8Array<ArrayBuffer> {
  const string = (text: string) => {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    return Buffer.concat([length, Buffer.from(text)]);
  };
  const entry = ([key, value]: [string, number | boolean]) =>
    typeof value === "boolean"
      ? Buffer.concat([string(key), Buffer.from([7, 0, 0, 0, Number(value)])])
      : Buffer.concat([string(key), Buffer.from([4, 0, 0, 0, value, 0, 0, 0])]);
  const entries = Buffer.concat(Object.entries(keys).map(entry));
  const filler = string("general.description");
  const rest = (32 - ((entries.length + filler.length + 4 + 8) % 32)) % 32;
  const { length } = parseGguf(file).header;
  const changed = Buffer.concat([
    file.subarray(0, length),
    entries,
    filler,
    Buffer.from([8, 0, 0, 0]),
    string(" ".repeat(rest)),
    file.subarray(length),
  ]);
  changed.writeBigUInt64LE(changed.readBigUInt64LE(16) + BigInt(Object.keys(keys).length + 1), 16);
  return Uint8Array.from(changed);
}

test("the last state is transformers', and the mean is theirs", async (context) => {
  const model = await load(new URL("../../../tests/golden/models/qwen3/", import.meta.url), { threads: 1 });
  context.after(() => model.close());
  const states = await expected((await model.tokenize(PROMPT)).length);
  const [last] = await model.embed([PROMPT], { pooling: "last" });
  assert.ok(cosine(last!, states.at(-1)!) > 0.99999, `${cosine(last!, states.at(-1)!)}`);
  const mean = states[0]!.map((_, i) => states.reduce((sum, state) => sum + state[i]!, 0) / states.length);
  const [own] = await model.embed([PROMPT]);
  assert.ok(cosine(own!, mean) > 0.99999, `${cosine(own!, mean)}`);
  assert.ok(cosine(own!, last!) < 0.9, "they differ");
});

test("a text without a token is named by its place", async (context) => {
  const model = await load(Uint8Array.from(await golden("gguf/qwen3.Q8_0.gguf")), { threads: 1 });
  context.after(() => model.close());
  for (const empty of ["", []]) {
    const detail = { option: "texts[1]", expected: "a token at least", found: "none" };
    await assert.rejects(model.embed([PROMPT, empty]), { code: "InvalidArgument", message: /^texts\[1\]: /, detail });
  }
  assert.equal((await model.embed([PROMPT])).length, 1);
});

/** What ends a text is its last token, for texts that are given as such. */
async function ends(model: Model, token: string, pooling?: "last"): Promise<void> {
  const plain = await model.tokenize(PROMPT, { addSpecial: false });
  const [end] = await model.tokenize(token, { addSpecial: false });
  assert.deepEqual(await model.tokenize(PROMPT), [...plain, end]);
  const rows = await model.embed([PROMPT, [...plain, end!], plain], { pooling });
  assert.deepEqual(rows[0], rows[1]);
  assert.notDeepEqual(rows[0], rows[2]);
}

test("a folder of the model without its head, as Qwen3-Embedding comes", async (context) => {
  const whole = await load(new URL("../../../tests/golden/models/qwen3/", import.meta.url), { threads: 1 });
  context.after(() => whole.close());
  const model = await load(await embedder(), { threads: 1 });
  context.after(() => model.close());
  await ends(model, "<|endoftext|>", "last");
  const [ids] = await Promise.all([whole.tokenize(PROMPT)]);
  assert.deepEqual(await model.embed([ids], { pooling: "last" }), await whole.embed([ids], { pooling: "last" }));
});

test("a GGUF says how its states become one, and what ends a text", async (context) => {
  const file = await golden("gguf/qwen3.Q8_0.gguf");
  const plain = await load(Uint8Array.from(file), { threads: 1 });
  context.after(() => plain.close());
  const keys = { "qwen3.pooling_type": 3, "tokenizer.ggml.add_eos_token": true };
  const model = await load(withKeys(file, keys), { threads: 1 });
  context.after(() => model.close());
  await ends(model, "<|im_end|>");
  const [ids] = await Promise.all([plain.tokenize(PROMPT)]);
  const [mean, last] = await Promise.all((["mean", "last"] as const).map((pooling) => plain.embed([ids], { pooling })));
  assert.notDeepEqual(mean, last);
  assert.deepEqual(await plain.embed([ids]), mean);
  assert.deepEqual(await model.embed([ids]), last);
  assert.deepEqual(await model.embed([ids], { pooling: "mean" }), mean);
  // 1 is the mean.
  const other = await load(withKeys(file, { "qwen3.pooling_type": 1 }), { threads: 1 });
  context.after(() => other.close());
  assert.deepEqual(await other.embed([ids]), mean);
});
