import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import { MAX_TEXT } from "../../src/text/limits.ts";
import { BYTE_OF } from "../../src/text/pieces.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Part, TokenizerJson } from "../../src/text/tokenizer_json.ts";
import { checkGolden, failure } from "./support/check.ts";
import { FROM_JSON, ggufFile, ggufNames, goldenStrings, OF_GGUF, smollm2, tokenizerFiles } from "./support/golden.ts";

for (const name of Object.keys(FROM_JSON)) {
  test(`${name}: all golden strings, from tokenizer.json`, () => {
    const { json, config } = tokenizerFiles(name);
    checkGolden(new Tokenizer(json, config), goldenStrings(name));
  });
}

for (const file of ggufNames()) {
  test(`${file}: all golden strings, from the embedded tokenizer`, () => {
    const golden = OF_GGUF.find(([pattern]) => pattern.test(file))?.[1] as string;
    const { json, config, warnings } = fromGguf(ggufFile(file));
    checkGolden(new Tokenizer(json, config, warnings), goldenStrings(golden));
  });
}

test("smollm2: all golden strings, from the GGUF in its package", () => {
  const { json, config } = fromGguf(smollm2());
  const tokenizer = new Tokenizer(json, config);
  checkGolden(tokenizer, goldenStrings("smollm2"));
  assert.deepEqual([tokenizer.vocab, tokenizer.bos?.id, tokenizer.eos?.id, tokenizer.addsBos], [49152, 1, 2, false]);
});

test("special tokens: what is known, what is added, what ends a generation", () => {
  const { json, config } = tokenizerFiles("tiny_llama3");
  const tokenizer = new Tokenizer(json, config);
  assert.equal(tokenizer.kind, "byte-level BPE");
  assert.equal(tokenizer.vocab, 512);
  assert.deepEqual(tokenizer.bos, { id: 508, text: "<|begin_of_text|>" });
  assert.deepEqual(
    tokenizer.ends.map((end) => end.text),
    ["<|end_of_text|>", "<|eot_id|>"],
  );
  // Files of finetuned models are often wrong about which of their added tokens are special.
  const plain = json.added_tokens.map((token) => ({
    ...token,
    special: token.content !== "<|eot_id|>" && token.special,
  }));
  assert.deepEqual(new Tokenizer({ ...json, added_tokens: plain }, config).ends, tokenizer.ends);
  assert.deepEqual([tokenizer.addsBos, tokenizer.addsEos], [true, false]);
  assert.equal(tokenizer.specialTokens.pad_token, "<|pad|>");
  assert.equal(tokenizer.tokenText(508), "<|begin_of_text|>");
  assert.equal(tokenizer.tokenText(512), null);
  assert.deepEqual(tokenizer.warnings, []);
});

test("decode: special tokens only on demand, unknown ids are nothing, what is no id is refused", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const tokenizer = new Tokenizer(json, config);
  const ids = tokenizer.encode("<|im_start|>a b<|im_end|>");
  assert.equal(tokenizer.decode(ids), "<|im_start|>a b<|im_end|>");
  assert.equal(tokenizer.decode(ids, { special: false }), "a b");
  assert.equal(tokenizer.decode([...ids, 100_000]), "<|im_start|>a b<|im_end|>");
  for (const id of [-1, 1.5, Number.NaN]) assert.equal(failure(() => tokenizer.decode([id])).code, "InvalidArgument");
});

test("decode: bytes that are no text become U+FFFD, a leading space of SentencePiece goes", () => {
  const byteLevel = tokenizerFiles("tiny_smollm");
  const smol = new Tokenizer(byteLevel.json, byteLevel.config);
  const euro = smol.encode("\u20ac", { addSpecial: false });
  assert.equal(euro.length, 3);
  assert.equal(smol.decode(euro.slice(0, 2)), "\ufffd");
  assert.equal(smol.decode([...euro.slice(1), ...euro]), "\ufffd\ufffd\u20ac");

  const { json, config } = tokenizerFiles("tiny_llama2");
  const llama = new Tokenizer(json, config);
  const text = " two spaces";
  assert.equal(llama.decode(llama.encode(text), { special: false }), text);
  assert.equal(llama.decode(llama.encode("\ufeffbom"), { special: false }), "\ufeffbom");
});

test("encode: a text that is too long is refused", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const error = failure(() => new Tokenizer(json, config).encode("a".repeat(MAX_TEXT + 1)));
  assert.equal(error.code, "InvalidArgument");
});

test("tokenizer_config.json may be missing, or contradict tokenizer.json, which is followed with a warning", () => {
  const { json, config } = tokenizerFiles("tiny_llama3");
  const alone = new Tokenizer(json, null);
  assert.deepEqual(alone.bos, { id: 508, text: "<|begin_of_text|>" });
  assert.equal(alone.eos, null);
  const other = new Tokenizer(json, { ...config, add_bos_token: false, eos_token: "<nowhere>" });
  assert.equal(other.addsBos, true);
  assert.equal(other.eos, null);
  assert.equal(other.warnings.length, 2);
});

test("pre-tokenizers that the library cuts differently from Hugging Face", () => {
  const { json } = tokenizerFiles("tiny_smollm");
  const cuts = (part: Part | Part[], text: string) => {
    const pre_tokenizer = Array.isArray(part) ? { type: "Sequence", pretokenizers: part } : part;
    const tokenizer = new Tokenizer({ ...json, pre_tokenizer, added_tokens: [], model: everyPiece(text) }, null);
    return tokenizer.encode(text, { addSpecial: false }).map((id) => tokenizer.decode([id]));
  };
  const bytes: Part = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  assert.deepEqual(cuts([{ type: "Digits", individual_digits: true }, bytes], "a\u0661\u0662\u00bd"), [
    "a",
    "\u0661",
    "\u0662",
    "\u00bd",
  ]);
  assert.deepEqual(cuts([{ type: "Digits" }, bytes], "a\u0661\u0662b"), ["a", "\u0661\u0662", "b"]);
  assert.deepEqual(cuts([{ type: "Punctuation" }, bytes], "a!?b"), ["a", "!", "?", "b"]);
  assert.deepEqual(cuts([{ type: "Punctuation", behavior: "Contiguous" }, bytes], "a!?b"), ["a", "!?", "b"]);
  assert.deepEqual(cuts({ ...bytes, use_regex: true }, "\ufeff#x\u0085\u0085y"), [
    "\ufeff#",
    "x",
    "\u0085",
    "\u0085",
    "y",
  ]);
  assert.deepEqual(cuts({ ...bytes, use_regex: true, add_prefix_space: true }, "ab \u{1f600}"), [" ab", " \u{1f600}"]);
  const split = { type: "Split", pattern: { Regex: "\\p{L}+" } };
  assert.deepEqual(cuts([{ ...split, behavior: "Isolated", invert: true }, bytes], "ab12"), ["ab", "12"]);
  assert.deepEqual(cuts([{ ...split, behavior: "Removed", invert: true }, bytes], "ab12cd"), ["ab", "cd"]);
});

/** A vocabulary in which every part of a text, with a space before it or not, is one token: what is cut stays cut. */
function everyPiece(text: string): Part {
  const letter = new Map([...BYTE_OF].map(([char, byte]) => [byte, char]));
  const chars = [...text];
  const vocab: Record<string, number> = {};
  for (let from = 0; from < chars.length; from++) {
    for (let to = from + 1; to <= chars.length; to++) {
      for (const prefix of ["", " "]) {
        const bytes = new TextEncoder().encode(prefix + chars.slice(from, to).join(""));
        vocab[Array.from(bytes, (byte) => letter.get(byte)).join("")] ??= Object.keys(vocab).length;
      }
    }
  }
  return { type: "BPE", vocab, merges: [], ignore_merges: true };
}

/** A Sequence within a Sequence, deeper than calls may be. */
function nested(key: string): Record<string, unknown> {
  let part: Record<string, unknown> = { type: "Unheard" };
  for (let depth = 0; depth < 20_000; depth++) part = { type: "Sequence", [key]: [part] };
  return part;
}

test("a bad tokenizer.json is a typed error that names the part", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const bad: [Record<string, unknown> | null, string][] = [
    [null, "decoder"],
    [{}, "decoder"],
    [{ ...json, model: { ...json.model, type: "WordPiece" } }, "model.type"],
    [{ ...json, model: { ...json.model, vocab: null } }, "model.vocab"],
    [{ ...json, model: { ...json.model, vocab: { a: 2 ** 31 } } }, "model.vocab"],
    [{ ...json, model: { ...json.model, vocab: { a: "1" } } }, "model.vocab"],
    [{ ...json, model: { ...json.model, vocab: { ["a".repeat(5000)]: 1 } } }, "model.vocab"],
    [{ ...json, model: { ...json.model, merges: "a b" } }, "model.merges"],
    [{ ...json, model: { ...json.model, merges: [7] } }, "model.merges"],
    [{ ...json, model: { ...json.model, merges: ["a b c"] } }, "model.merges"],
    [{ ...json, model: { ...json.model, merges: [["a", "b"], "c d"] } }, "model.merges"],
    [{ ...json, model: { ...json.model, end_of_word_suffix: "</w>" } }, "model.end_of_word_suffix"],
    [{ ...json, added_tokens: [{ id: -4, content: "x" }] }, "added_tokens"],
    [{ ...json, added_tokens: "x" }, "added_tokens"],
    [{ ...json, pre_tokenizer: { type: "Unheard" } }, "pre_tokenizer.type"],
    [{ ...json, pre_tokenizer: { type: "Split", pattern: { Regex: "(" }, behavior: "Isolated" } }, ""],
    [
      { ...json, pre_tokenizer: { type: "Split", pattern: { Regex: "a" }, behavior: "MergedWithNext" } },
      "pre_tokenizer.behavior",
    ],
    [{ ...json, pre_tokenizer: 5 }, "pre_tokenizer"],
    [{ ...json, pre_tokenizer: nested("pretokenizers") }, "pre_tokenizer"],
    [{ ...json, pre_tokenizer: { type: "Metaspace", replacement: "__", split: false } }, "pre_tokenizer.replacement"],
    [{ ...json, normalizer: { type: "Unheard" } }, ""],
    [{ ...json, normalizer: { type: "Sequence", normalizers: [null] } }, "normalizer"],
    [{ ...json, normalizer: nested("normalizers") }, "normalizer"],
    [{ ...json, normalizer: { type: "Prepend", prepend: null } }, "normalizer.prepend"],
    [{ ...json, normalizer: { type: "Replace", pattern: { String: "e" }, content: {} } }, "normalizer.content"],
    [{ ...json, decoder: null }, "decoder"],
    [{ ...json, decoder: { type: "WordPiece" } }, "decoder.type"],
    [{ ...json, decoder: { type: "Sequence", decoders: 3 } }, "decoder.decoders"],
    [{ ...json, decoder: { type: "Sequence", decoders: [null] } }, "decoder"],
    [{ ...json, decoder: { type: "Replace", pattern: { String: "" }, content: "x" } }, "decoder"],
    [{ ...json, decoder: nested("decoders") }, "decoder"],
    [{ ...json, post_processor: { type: "Unheard" } }, "post_processor"],
    [{ ...json, post_processor: { type: "BertProcessing" } }, "post_processor"],
    [{ ...json, post_processor: nested("processors") }, "post_processor"],
    [{ ...json, post_processor: { type: "TemplateProcessing", single: [null] } }, "post_processor"],
    [{ ...json, model: { type: "Unigram", vocab: [null] }, decoder: { type: "Fuse" } }, "model.vocab"],
    [{ ...json, model: { type: "Unigram", vocab: [["a", 0]], unk_id: 7 }, decoder: { type: "Fuse" } }, "model.unk_id"],
    [
      {
        ...json,
        post_processor: {
          type: "TemplateProcessing",
          single: [{ SpecialToken: { id: "<nowhere>" } }, { Sequence: { id: "A" } }],
        },
      },
      "post_processor",
    ],
  ];
  const wrong: unknown[] = [];
  for (const [file, key] of bad) {
    const error = failure(() => new Tokenizer(file as unknown as TokenizerJson, config));
    if (error.code !== "BadTokenizer" || error.detail.key !== key) wrong.push({ key, error: error.toJSON() });
  }
  assert.deepEqual(wrong, []);
});
