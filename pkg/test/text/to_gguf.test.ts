import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import { toGguf } from "../../src/text/to_gguf.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Bpe, TokenizerJson } from "../../src/text/tokenizer_json.ts";
import { checkGolden, failure } from "./support/check.ts";
import { parseGguf, writeGguf } from "./support/gguf_file.ts";
import { FROM_JSON, ggufFile, goldenStrings, tokenizerFiles } from "./support/golden.ts";

for (const name of Object.keys(FROM_JSON)) {
  test(`${name}: all golden strings, from tokenizer.json by way of GGUF`, () => {
    const { json, config } = tokenizerFiles(name);
    const vocab = new Tokenizer(json, config).vocab + 3;
    const gguf = parseGguf(writeGguf(toGguf(json, config, { vocab, template: "{{ x }}" })));
    const start = performance.now();
    const back = fromGguf(gguf);
    const milliseconds = performance.now() - start;
    const tokenizer = new Tokenizer(back.json, back.config, back.warnings);
    checkGolden(tokenizer, goldenStrings(name));
    assert.deepEqual(tokenizer.warnings, []);
    assert.equal(back.config.chat_template, "{{ x }}");
    assert.equal(gguf.array("tokenizer.ggml.tokens")?.count, vocab, "ids of the embedding that the tokenizer lacks");
    assert.ok(milliseconds < 2000, `reading it took ${milliseconds} ms`);
  });
}

test("what the tiny models' GGUF files say about their tokenizers is what we say", () => {
  const pairs = {
    "llama_bitlinear.TQ1_0.gguf": "tiny_llama3",
    "llama_f32.F32.gguf": "tiny_smollm",
    "qwen3.Q8_0.gguf": "tiny_qwen2",
    "onebitllm_style.F16.gguf": "tiny_llama2",
  };
  for (const [file, name] of Object.entries(pairs)) {
    const theirs = ggufFile(file);
    const { json, config } = tokenizerFiles(name);
    const ours = parseGguf(writeGguf(toGguf(json, config)));
    for (const key of ["model", "pre", "bos_token_id", "eos_token_id", "padding_token_id", "add_bos_token"]) {
      const full = `tokenizer.ggml.${key}`;
      // llama.cpp's converter leaves out what its reader assumes.
      if (theirs.get(full) !== undefined) assert.equal(ours.get(full), theirs.get(full), `${file} ${full}`);
    }
    const [a, b] = [fromGguf(ours).json, fromGguf(theirs).json];
    assert.deepEqual({ ...(a.model as Bpe).vocab }, { ...(b.model as Bpe).vocab }, file);
    assert.deepEqual(a.added_tokens, b.added_tokens, file);
  }
});

test("a GGUF's own tokenizer survives a round", () => {
  for (const file of ["onebitllm_style.F16.gguf", "qwen3.Q8_0.gguf", "llama_bitlinear.TQ1_0.gguf"]) {
    const first = fromGguf(ggufFile(file));
    const again = fromGguf(parseGguf(writeGguf(toGguf(first.json, first.config))));
    assert.deepEqual(again.json, first.json, file);
  }
});

test("GPT-NeoX's tokenizer, TriLM's, which composes Unicode first and has GPT-2's pattern, is called olmo", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const neox = { ...json, normalizer: { type: "NFC" }, pre_tokenizer: { type: "ByteLevel", add_prefix_space: false } };
  const gguf = parseGguf(writeGguf(toGguf(neox, config)));
  assert.equal(gguf.get("tokenizer.ggml.pre"), "olmo");
  const back = fromGguf(gguf);
  const [theirs, ours] = [new Tokenizer(neox, config), new Tokenizer(back.json, back.config)];
  for (const text of ["cafe\u0301 12345", "a  b\n\n c's", "\u1100\u1161"]) {
    assert.deepEqual(ours.encode(text), theirs.encode(text), text);
    assert.deepEqual(ours.encode(text), ours.encode(text.normalize("NFC")), text);
  }
});

test("what GGUF cannot express is refused by name", () => {
  const byteLevel = tokenizerFiles("tiny_smollm");
  const scored = tokenizerFiles("tiny_llama2");
  const model = byteLevel.json.model as Bpe;
  const pieces = scored.json.model as Bpe;
  const cases: [Partial<TokenizerJson>, typeof byteLevel, string][] = [
    [{ model: { type: "Unigram", vocab: [] } }, byteLevel, "model.type"],
    [{ model: { ...model, ignore_merges: true } as Bpe }, byteLevel, "tokenizer.ggml.pre"],
    [{ normalizer: { type: "NFC" } }, byteLevel, "tokenizer.ggml.pre"],
    [{ pre_tokenizer: { type: "ByteLevel", add_prefix_space: true } }, byteLevel, "tokenizer.ggml.pre"],
    [{ model: { ...model, merges: [["a b", "c"]] } as Bpe }, byteLevel, "model.merges"],
    [{ decoder: { type: "Fuse" } }, byteLevel, "decoder"],
    [{ normalizer: { type: "NFC" } }, scored, "normalizer"],
    [{ pre_tokenizer: { type: "Metaspace" } }, scored, "pre_tokenizer"],
    [
      { model: { ...pieces, merges: [...pieces.merges].reverse().concat(pieces.merges.slice(0, 1)) } as Bpe },
      scored,
      "model.merges",
    ],
    [{ model: { ...pieces, merges: pieces.merges.slice(1) } as Bpe }, scored, "model.merges"],
    [
      {
        post_processor: {
          type: "TemplateProcessing",
          single: [{ SpecialToken: { id: "</s>" } }, { Sequence: { id: "A" } }],
        },
      },
      scored,
      "post_processor",
    ],
  ];
  const wrong: unknown[] = [];
  for (const [change, { json, config }, key] of cases) {
    const error = failure(() => toGguf({ ...json, ...change }, config));
    if (error.code !== "BadTokenizer" || error.detail.key !== key) wrong.push({ key, error: error.toJSON() });
  }
  assert.deepEqual(wrong, []);
});

test("parts that a tokenizer.json may leave out need not be there", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const { added_tokens: _, normalizer: __, post_processor: ___, ...file } = json;
  const tokens = toGguf(file, null).find(({ key }) => key === "tokenizer.ggml.tokens")?.value as readonly string[];
  assert.equal(tokens.length, new Tokenizer(json, config).vocab);
});

test("what a load refuses makes no file, and has the same error", () => {
  const { json } = tokenizerFiles("tiny_smollm");
  const model = json.model as Bpe;
  const vocab = (id: unknown) => ({ ...json, model: { ...model, vocab: { ...model.vocab, ar: id } } });
  const cases: [string, unknown][] = [
    ["model.type", {}],
    ["model.type", { ...json, model: null }],
    ["model.vocab", { ...json, model: { ...model, vocab: "x" } }],
    ["model.vocab", vocab(-1)],
    ["model.vocab", vocab("1")],
    ["model.merges", { ...json, model: { ...model, merges: null } }],
    ["model.merges", { ...json, model: { ...model, merges: [1, 2] } }],
    ["model.end_of_word_suffix", { ...json, model: { ...model, end_of_word_suffix: "</w>" } }],
    ["added_tokens", { ...json, added_tokens: null }],
    ["added_tokens", { ...json, added_tokens: [{}] }],
  ];
  for (const [key, file] of cases) {
    const written = failure(() => toGguf(file as TokenizerJson, null));
    assert.equal(written.detail.key, key, written.message);
    const { decoder } = json;
    assert.equal(written.message, failure(() => new Tokenizer({ decoder, ...(file as object) }, null)).message);
  }
});
