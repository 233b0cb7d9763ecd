/** Characters of several tokens. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { load } from "ternlight";
import { CONTINUATION, DEMO, demo, failure, ONCE, pieces } from "./support/model.ts";

const TEXTS = [
  "Once upon a time, in 1890, there lived a fox.",
  "naïve café — “quoted” …",
  "🦊 said 👋🏽 to 👩‍👩‍👧‍👦 and 🇳🇱",
  "从前有一只狐狸。むかしむかし、옛날 옛적에",
  "tabs\tand\n\nlines\r\n  spaces   ",
  "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \u0000 \uFEFF \uFFFD",
  "",
];

test("text, ids and text again", async (context) => {
  const model = await demo(context);
  for (const text of TEXTS) {
    const ids = await model.tokenize(text);
    assert.equal(await model.detokenize(ids), text);
  }
  const marked = await model.tokenize("<|endoftext|>Once");
  assert.equal(marked[0], 0);
  assert.equal(await model.detokenize(marked), "<|endoftext|>Once");
  assert.equal(await model.detokenize(marked, { special: false }), "Once");
});

/** As byte-level vocabularies spell bytes. */
function spelled(bytes: readonly number[]): string {
  const printable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !printable(byte));
  return bytes.map((byte) => String.fromCodePoint(printable(byte) ? byte : 256 + others.indexOf(byte))).join("");
}

/** The demo model with other words for the ids that it is going to say: it speaks the same ids, and new text. */
async function respelled(words: readonly (readonly [id: number, bytes: readonly number[]])[]) {
  const file = async (name: string) => new Uint8Array(await readFile(new URL(name, DEMO)));
  const json = JSON.parse(new TextDecoder().decode(await file("tokenizer.json")));
  const byId = new Map(Object.entries(json.model.vocab as Record<string, number>).map(([token, id]) => [id, token]));
  // A word that another id has is freed first.
  const wanted = new Set(words.map(([, bytes]) => spelled(bytes)));
  for (const [id, token] of byId) if (wanted.has(token)) byId.set(id, `unused ${id}`);
  for (const [id, bytes] of words) byId.set(id, spelled(bytes));
  json.model.vocab = Object.fromEntries([...byId].map(([id, token]) => [token, id]));
  json.model.merges = [];
  return {
    "config.json": await file("config.json"),
    "model.safetensors": await file("model.safetensors"),
    "tokenizer_config.json": await file("tokenizer_config.json"),
    "tokenizer.json": new TextEncoder().encode(JSON.stringify(json)),
  };
}

/** 😀 of three tokens, 你 and 핀 of two each, `!`, é, and a byte that belongs to nothing. */
const WORDS = [
  [441, [0xf0, 0x9f]],
  [1113, [0x98]],
  [259, [0x80]],
  [477, [0xe4, 0xbd]],
  [443, [0xa0]],
  [336, [0xed, 0x95]],
  [976, [0x21]],
  [270, [0xc3, 0xa9]],
] as const;

test("a piece never holds a part of a character", async (context) => {
  assert.deepEqual(CONTINUATION.tokens, [441, 1113, 259, 477, 443, 336, 259, 976, 270, 259, 976, 14]);
  const model = await load(await respelled(WORDS), { threads: 1 });
  context.after(() => model.close());
  const say = (maxTokens: number, stop: string[] = []) => model.generate(ONCE, { temperature: 0, maxTokens, stop });

  assert.deepEqual(await pieces(say(9)), [
    { text: "😀", tokens: [441, 1113, 259] },
    { text: "你", tokens: [477, 443] },
    { text: "핀", tokens: [336, 259] },
    { text: "!", tokens: [976] },
    { text: "é", tokens: [270] },
  ]);
  // What can become no character any more is shown as Unicode says.
  assert.equal(await say(11).text(), "😀你핀!é\uFFFD!");
  assert.equal(await say(2).text(), "\uFFFD");
  const stopped = await say(9, ["你핀"]).finished;
  assert.equal(stopped.text, "😀");
  assert.equal(stopped.finishReason, "stop");
});

test("without a tokenizer there are ids alone", async (context) => {
  const { "tokenizer.json": _, ...files } = await respelled([]);
  const model = await load(files, { threads: 1 });
  context.after(() => model.close());
  assert.equal(model.info.tokenizer, null);
  const said = await pieces(model.generate(ONCE, { temperature: 0, maxTokens: 2 }));
  assert.deepEqual(said, [
    { text: "", tokens: [441] },
    { text: "", tokens: [1113] },
  ]);
  // What is text by default is left out, what is asked for is missed.
  const dry = { temperature: 0, maxTokens: 2, dryMultiplier: 0.8 };
  assert.deepEqual((await model.generate(ONCE, dry).finished).tokens, [441, 1113]);
  const broken = await failure(() => model.generate(ONCE, { ...dry, dryBreakers: ["."] }).finished);
  assert.equal(broken.code, "MissingTokenizer");
  const { code, detail } = await failure(() => model.generate("Once").finished);
  assert.equal(code, "MissingTokenizer");
  assert.equal(detail.file, "tokenizer.json");
});

test("a model without a template refuses a chat, naming the reason", async (context) => {
  const model = await demo(context);
  const { code } = await failure(() => model.chat([{ role: "user", content: "Hi" }]).finished);
  assert.match(code, /Template/);
});
