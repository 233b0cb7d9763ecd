import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import { TextStream } from "../../src/text/stream.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { FROM_JSON, goldenStrings, smollm2, tokenizerFiles } from "./support/golden.ts";
import { random } from "./support/random.ts";

const HARD = [
  "\u{1f469}\u200d\u{1f469}\u200d\u{1f467}\u200d\u{1f466} \u{1f3f3}\ufe0f\u200d\u{1f308} \u{1f44d}\u{1f3fd} \u{1f1eb}\u{1f1f7}",
  "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4, \u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002 \u{2070e}\u{20731}",
  "\ufeffbom \ufeff in the middle \ufffd",
  "  leading, e\u0301\u0323, \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
];

const tokenizers: [string, () => Tokenizer][] = Object.keys(FROM_JSON).map((name) => {
  return [name, () => new Tokenizer(tokenizerFiles(name).json, tokenizerFiles(name).config)];
});
tokenizers.push(["smollm2", () => new Tokenizer(fromGguf(smollm2()).json, null)]);

/** Pieces of ids, each checked for what a page may rely on. */
function stream(tokenizer: Tokenizer, ids: readonly number[], special: boolean): string[] {
  const text = new TextStream(tokenizer, { special });
  const pieces = [...ids.map((id) => text.push(id)), text.flush()];
  for (const piece of pieces) assert.doesNotMatch(piece, /\p{Surrogate}/u, "a piece splits no character");
  return pieces;
}

for (const [name, open] of tokenizers) {
  test(`${name}: streamed pieces make up the decoded text, which is what the bytes say`, () => {
    const tokenizer = open();
    const below = random(7);
    const cases = [...goldenStrings(name).map(({ ids }) => ids), ...HARD.map((text) => tokenizer.encode(text))];
    for (let i = 0; i < 400; i++) cases.push(Array.from({ length: below(40) }, () => below(tokenizer.vocab + 2)));
    for (const ids of cases) {
      for (const special of [false, true]) {
        const text = stream(tokenizer, ids, special).join("");
        assert.equal(text, tokenizer.decode(ids, { special }));
        assert.equal(text, naive(tokenizer, ids, special));
      }
    }
    for (const text of HARD) {
      const ids = tokenizer.encode(text, { addSpecial: false });
      // Qwen composes Unicode first.
      assert.equal(tokenizer.decode(ids), name.includes("qwen") ? text.normalize("NFC") : text);
    }
  });
}

/** All bytes at once through the platform's decoder. */
function naive(tokenizer: Tokenizer, ids: readonly number[], special: boolean): string {
  const bytes = ids.flatMap((id) => [...tokenizer.bytes(id, special)]);
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  return tokenizer.leadingSpaces === 1 && text.startsWith(" ") ? text.slice(1) : text;
}

test("a character comes with the token that completes it, and no later", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const tokenizer = new Tokenizer(json, config);
  for (const [text, pieces] of [
    ["a\u00e9b", ["a", "\u00e9", "b"]],
    ["\u20ac\u20ac", ["", "", "\u20ac", "", "", "\u20ac"]],
    ["\u{1f600}!", ["", "", "", "\u{1f600}", "!"]],
  ] as const) {
    const ids = tokenizer.encode(text, { addSpecial: false });
    const got = stream(tokenizer, ids, false);
    assert.equal(got.pop(), "", "nothing is left at the end");
    // Some of these vocabularies have whole characters as tokens: what matters is that each piece is as early as it can be.
    if (ids.length === pieces.length) assert.deepEqual(got, pieces);
    else assert.equal(got.join(""), text);
  }
});

test("bytes that can no longer become a character show at once, others at the end", () => {
  const { json, config } = tokenizerFiles("tiny_llama2");
  const tokenizer = new Tokenizer(json, config);
  const vocab = (json.model as unknown as { vocab: Record<string, number> }).vocab;
  const byte = (value: number) => vocab[`<0x${value.toString(16).toUpperCase().padStart(2, "0")}>`] as number;
  const push = (...bytes: number[]) => stream(tokenizer, bytes.map(byte), false);
  const bad = "\ufffd";
  assert.deepEqual(push(0xff), [bad, ""]);
  assert.deepEqual(push(0x80), [bad, ""]);
  assert.deepEqual(push(0xe2, 0x82), ["", "", bad]);
  assert.deepEqual(push(0xe2, 0x82, 0xe2), ["", "", bad, bad]);
  assert.deepEqual(push(0xe2, 0x82, 0xac, 0xf0), ["", "", "\u20ac", "", bad]);
  assert.deepEqual(push(0xe0, 0x80), ["", bad + bad, ""], "an overlong form");
  assert.deepEqual(push(0xed, 0xa0, 0x80), ["", bad + bad, bad, ""], "a surrogate");
  assert.deepEqual(push(0xf4, 0x90, 0x80), ["", bad + bad, bad, ""], "above U+10FFFF");
  assert.deepEqual(push(0xf0, 0x9f, 0x98, 0x80), ["", "", "", "\u{1f600}", ""]);
  assert.deepEqual(push(0xc0, 0xaf), [bad, bad, ""]);
});

test("a text that goes on keeps its leading space", () => {
  const { json, config } = tokenizerFiles("tiny_llama2");
  const tokenizer = new Tokenizer(json, config);
  const ids = tokenizer.encode("the end", { addSpecial: false });
  const text = new TextStream(tokenizer, { continues: true });
  assert.equal(ids.map((id) => text.push(id)).join("") + text.flush(), " the end");
});

test("the cost of a token does not grow with the text", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const tokenizer = new Tokenizer(json, config);
  const [broken] = tokenizer.encode("\u20ac", { addSpecial: false });
  const text = new TextStream(tokenizer);
  for (let i = 0; i < 300_000; i++) assert.equal(text.push(broken as number).length, i === 0 ? 0 : 1);
});
