/** Vocabularies that are cut: what stays encodes as before, computes the same bits, and everything else still encodes. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { load, type Model } from "ternlight";
import { compare, forSlice, slice } from "ternlight/quality";
import { Gguf } from "../../src/quality/gguf.ts";
import { sliceModel, tokenizerOf } from "../../src/quality/slice.ts";
import { BlobSource } from "../../src/source/blob.ts";
import type { Tokenizer } from "../../src/text/tokenizer.ts";
import { done, json, ternlight } from "../cli/support/ternlight.ts";
import { contents } from "../convert/support/convert.ts";
import { folderOf, goldenFile } from "../source/support/models.ts";
import { bytesOf, demoText, rebuilt, trained } from "./support/craft.ts";

const IDS = "ternlight.slice.ids";
const HARD = [
  "",
  " ",
  "  two  spaces\n\n\tand tabs\r\n",
  "naïve café — “quotes” … ﬁ ½ ²",
  "안녕하세요, 世界! Ελλάδα русский عربى",
  "🤖👩‍👩‍👧‍👦 ☃\u0301",
  "0123456789 1,000.50 <|endoftext|> </s> <0x41>",
  "supercalifragilisticexpialidocious antidisestablishmentarianism",
];

async function withBoth(
  whole: Uint8Array<ArrayBuffer>,
  cut: Uint8Array<ArrayBuffer>,
  work: (a: Model, b: Model) => Promise<void>,
) {
  const options = { threads: 1, contextLength: 256 };
  const [a, b] = await Promise.all([load(whole, options), load(cut, options)]);
  try {
    await work(a, b);
  } finally {
    await Promise.all([a.close(), b.close()]);
  }
}

/** The pieces of a text that the slice has every token of. */
async function within(model: Model, ids: readonly number[], text: string): Promise<string[]> {
  const kept = new Set(ids);
  const found: string[] = [];
  for (const sentence of text.match(/[^.!?\n]+[.!?\n]+/g) ?? []) {
    const own = await model.tokenize(sentence, { addSpecial: false });
    if (own.every((id) => kept.has(id))) found.push(sentence);
  }
  return found;
}

const models: [name: string, file: () => Promise<Uint8Array<ArrayBuffer>>, keep: number][] = [
  ["the trained demo", async () => trained(), 1500],
  ["Llama 3's kind, whole words taken as they are", () => goldenFile("gguf/llama_bitlinear.TQ2_0.gguf"), 400],
  ["SmolLM's kind, a head of its own", () => goldenFile("gguf/llama_bf16.Q8_0.gguf"), 401],
  ["Qwen's kind", () => goldenFile("gguf/qwen3.Q1_0_all.gguf"), 399],
  ["scores and byte tokens", () => goldenFile("gguf/onebitllm_style.TQ2_0.gguf"), 420],
];

for (const [name, file, keep] of models) {
  test(`${name}: kept tokens map one to one, with the same bits, and any text encodes`, async () => {
    const whole = await file();
    const text = demoText().slice(0, 20_000);
    const sliced = await slice(whole, { keep, text });
    assert.equal(sliced.after, keep);
    const cut = await bytesOf(sliced.file);
    assert.ok(cut.length < whole.length);
    const ids = [...sliced.ids];
    await withBoth(whole, cut, async (a, b) => {
      assert.equal(b.info.vocab, keep);
      const sentences = await within(a, ids, text);
      assert.ok(sentences.length > 5, `${sentences.length} sentences`);
      for (const sentence of sentences) {
        const [own, other] = await Promise.all([a.tokenize(sentence), b.tokenize(sentence)]);
        assert.deepEqual(
          other.map((id) => ids[id]),
          own,
          sentence,
        );
      }
      // Of each sentence by itself: joined ones may have tokens over the joint that are gone.
      const own = await Promise.all(sentences.slice(0, 4).map((one) => a.tokenize(one, { addSpecial: false })));
      const prompt = own.flat().slice(0, 96);
      assert.ok(prompt.length > 30, `${prompt.length} tokens`);
      const mapped = prompt.map((id) => ids.indexOf(id));
      const [rows, others] = await Promise.all([a.logits(prompt, { all: true }), b.logits(mapped, { all: true })]);
      assert.equal(rows.length, prompt.length);
      for (const [at, row] of rows.entries()) {
        assert.deepEqual(
          others[at],
          Float32Array.from(ids, (id) => row[id]!),
          `position ${at}`,
        );
      }
      for (const hard of [...HARD, text.slice(0, 3000)]) {
        const own = await a.detokenize(await a.tokenize(hard, { addSpecial: false }));
        assert.equal(await b.detokenize(await b.tokenize(hard, { addSpecial: false })), own);
      }
      assert.deepEqual(b.info.tokenizer!.eos, a.info.tokenizer!.eos);
      assert.equal(b.info.tokenizer!.bos, a.info.tokenizer!.bos);
    });
  });
}

/** Pieces that texts are made of: words, spaces, marks, any character, halves of pairs that stand alone in no text. */
const PIECES: readonly ((random: (below: number) => number) => string)[] = [
  (random) => ["the", "King", "said", "Hans", "it's", "1815", "don't", "Ünder"][random(8)]!,
  (random) => " \n\t\r\u00a0\u2581".charAt(random(6)).repeat(1 + random(3)),
  (random) => String.fromCodePoint(33 + random(94)),
  (random) => String.fromCodePoint([0x80, 0x370, 0x900, 0x3040, 0x4e00, 0xac00, 0x1f300][random(7)]! + random(0x80)),
  (random) => ["<s>", "</s>", "<|endoftext|>", "<0x0A>", "\u0301", "\u200d", "\ufeff", "\0"][random(8)]!,
];

test("any text encodes and decodes to the same text in any slice", async () => {
  let seed = 11;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const textOf = () => Array.from({ length: 1 + random(30) }, () => PIECES[random(PIECES.length)]!(random)).join("");
  const opened = async (bytes: Uint8Array<ArrayBuffer>) =>
    tokenizerOf(await Gguf.open([new BlobSource(new Blob([bytes]), "model")]));
  for (const [name, file] of models) {
    const bytes = await file();
    const whole = await opened(bytes);
    const vocab = (await sliceModel({ spec: { kind: "bytes", bytes } }, { tokens: [] })).before;
    for (let run = 0; run < 5; run++) {
      const tokens = Array.from({ length: random(vocab >> 1) }, () => random(vocab));
      const { file: made } = await sliceModel({ spec: { kind: "bytes", bytes } }, { tokens });
      const cut = await opened(await bytesOf(made));
      for (let i = 0; i < 60; i++) {
        const text = textOf();
        const roundTrip = (tokenizer: Tokenizer) => tokenizer.decode(tokenizer.encode(text, { addSpecial: false }));
        assert.equal(roundTrip(cut), roundTrip(whole), `${name}, run ${run}: ${JSON.stringify(text)}`);
      }
    }
  }
});

test("a slice says what it covers and costs, and where its tokens came from", async () => {
  const whole = trained();
  const text = demoText();
  const half = await slice(whole, { keep: 2048, text });
  assert.ok(half.coverage! > 0.9 && half.coverage! < 1);
  assert.ok(half.heldOut!.after > half.heldOut!.before && half.heldOut!.after < 1.3 * half.heldOut!.before);
  assert.equal(half.bytesAfter, half.file.size);
  const again = await slice(await bytesOf(half.file), { keep: 1024, text });
  const cut = await bytesOf(again.file);
  const { readNumbers } = await import("../../src/text/gguf.ts");
  const told = [...readNumbers(contents(cut).metadata, IDS, 1e6)!];
  assert.deepEqual(
    told,
    [...again.ids].map((id) => half.ids[id]),
  );
});

test("keeping all is the same file; ids of the metadata move; lists of tokens bring their merges along", async () => {
  const whole = trained();
  const all = await slice(whole, { keep: 4096, text: "a" });
  assert.deepEqual(await bytesOf(all.file), whole);
  const named = rebuilt(whole, {
    keys: { "tokenizer.ggml.eot_token_id": 4000, "tokenizer.ggml.suppress_tokens": Int32Array.of(4001, 7) },
  });
  const small = await slice(named, { tokens: ["Ġking", 300] });
  const texts = contents(await bytesOf(small.file)).metadata;
  assert.equal(texts.get("tokenizer.ggml.eot_token_id"), [...small.ids].indexOf(4000));
  const { readNumbers, readStrings } = await import("../../src/text/gguf.ts");
  assert.deepEqual(
    [...readNumbers(texts, "tokenizer.ggml.suppress_tokens", 10)!],
    [4001, 7].map((id) => [...small.ids].indexOf(id)),
  );
  const tokens = readStrings(texts, "tokenizer.ggml.tokens", 1e6)!;
  assert.ok(tokens.includes("Ġking"));
  const merges = readStrings(texts, "tokenizer.ggml.merges", 1e6)!;
  for (const merge of merges)
    for (const part of [...merge.split(" "), merge.replace(" ", "")]) assert.ok(tokens.includes(part), part);
  const model = await load(await bytesOf(small.file), { threads: 1 });
  assert.deepEqual(await model.tokenize(" king", { addSpecial: false }), [tokens.indexOf("Ġking")]);
  await model.close();
});

test("a slice is compared over the tokens that it kept, as it is made", async () => {
  const whole = trained();
  const text = demoText();
  const { file } = await slice(whole, { keep: 2048, text });
  const options = { load: { threads: 1, kvCacheType: "f32" } } as const;
  const { before, after } = await compare(whole, file, text.slice(-4000), options);
  assert.deepEqual([before.kl, before.sameWinner, after.kl], [0, 1, 0]);
  assert.deepEqual([before.size, after.size], [whole.length, file.size]);
  // Winners that the slice does not have are lost.
  assert.ok(after.sameWinner! > 0.9 && after.sameWinner! < 1);
  assert.ok(after.bitsPerByte > before.bitsPerByte && after.memory < before.memory);
  await assert.rejects(compare(whole, file, "two words"), { code: "InvalidArgument" });
  // A slice of a slice, whose key holds the ids of the first vocabulary, beside the first slice.
  const half = await bytesOf(file);
  const { file: small } = await slice(half, { keep: 1500, text });
  const again = await compare(half, small, text.slice(-4000), options);
  assert.deepEqual([again.after.kl, again.after.sameWinner! > 0.9], [0, true]);
});

test("logit options of the whole vocabulary become those of a slice", async () => {
  const whole = trained();
  const { file, ids } = await slice(whole, { keep: 2048, text: demoText() });
  const gone = [...Array(4096).keys()].find((id) => !ids.includes(id))!;
  const [a, b] = [ids[1000]!, ids[2000]!];
  const given = { logitBias: { [a]: 3, [gone]: -5, [b]: -100 }, bannedSequences: [[a, b], [gone, a], "Hans"] };
  const own = forSlice(given, ids);
  assert.deepEqual(own, { logitBias: { 1000: 3, 2000: -100 }, bannedSequences: [[1000, 2000], "Hans"] });
  assert.deepEqual(forSlice({}, ids), {});
  await withBoth(whole, await bytesOf(file), async (before, after) => {
    const prompt = [...ids.slice(500, 512)];
    const mapped = prompt.map((_, i) => 500 + i);
    const [row] = await before.logits(prompt);
    const best = ids.reduce((best, id) => (row![id]! > row![best]! ? id : best), a);
    const answer = { temperature: 0, maxTokens: 1, ignoreEos: true } as const;
    // Without the best token, and with another one forced.
    for (const options of [{ bannedSequences: [[best]] }, { logitBias: { [best]: -100, [a]: 100 } }]) {
      const bans = await after.generate(mapped, { ...answer, ...forSlice(options, ids) }).finished;
      const whole = await before.generate(prompt, { ...answer, ...options }).finished;
      assert.notEqual(whole.tokens[0], best);
      if (ids.includes(whole.tokens[0]!)) assert.equal(ids[bans.tokens[0]!], whole.tokens[0]);
      assert.notEqual(ids[bans.tokens[0]!], best);
    }
  });
});

test("what is wrong is refused by name", async () => {
  const whole = trained();
  const code = (code: string, option?: string) => (error: { code: string; detail: { option?: string } }) =>
    error.code === code && (option === undefined || error.detail.option === option);
  await assert.rejects(slice(whole, { keep: 100, text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { keep: 5000, text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { keep: 400, tokens: [1] }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, {}), code("InvalidArgument", "text"));
  await assert.rejects(slice(whole, { tokens: [99_999] }), code("BadValue", "tokens"));
  await assert.rejects(slice(whole, { tokens: ["no such token"] }), code("BadValue", "tokens"));
  await assert.rejects(slice(new TextEncoder().encode("no model at all"), { tokens: [1] }), code("BadMagic"));
  await assert.rejects(slice(whole.slice(0, 1000), { tokens: [1] }), code("Truncated"));
});

test("the command slices any source, also safetensors", async (context) => {
  const folder = await folderOf(context, { "text.txt": new TextEncoder().encode(demoText()) });
  const [text, out] = [path.join(folder, "text.txt"), path.join(folder, "small.gguf")];
  const told = await json("slice", "ternlight-demo", "--keep", "1000", "--text", text, "--output", out);
  assert.deepEqual([told.before, told.after, told.bytesAfter], [4096, 1000, (await readFile(out)).length]);
  const { before, after } = told.compared;
  assert.ok(after.memory < before.memory && after.bitsPerByte > 0 && before.tokens < after.tokens);
  // Over the sentences that are within the slice, whose kept logits are the same bits.
  assert.deepEqual([before.kl, after.kl], [0, 0]);
  assert.ok(after.sameWinner > 0.8 && after.sameWinner <= 1);
  const shown = await done("run", out, "-p", "Once upon a time", "-n", "8", "--temp", "0");
  assert.notEqual(shown.stdout.trim(), "");
  assert.equal(told.compared.text, "held-out");
  assert.deepEqual([told.ids.length, told.ids[0]], [1000, 0]);
  assert.equal(
    (await ternlight("slice", "ternlight-demo", "--keep", "900", "--text", text, "--output", out)).status,
    1,
  );
  await writeFile(path.join(folder, "ids.txt"), "300\n301\n");
  const few = await json(
    "slice",
    out,
    "--tokens",
    path.join(folder, "ids.txt"),
    "--output",
    path.join(folder, "few.gguf"),
  );
  assert.ok(few.after < 1000 && few.coverage === null);
  // No text was given: before and after are those of the built-in one.
  assert.equal(few.compared.text, "built-in");
  assert.ok(few.compared.before.perplexity > 1 && few.compared.after.tokens > few.compared.before.tokens);
  const costed = path.join(folder, "costed.gguf");
  const half = Array.from({ length: 2000 }, (_, i) => i).join("\n");
  await writeFile(path.join(folder, "half.txt"), half);
  const told2 = await json(
    "slice",
    "ternlight-demo",
    "--tokens",
    path.join(folder, "half.txt"),
    "--text",
    text,
    "--output",
    costed,
  );
  assert.ok(told2.coverage > 0.5 && told2.heldOut.after > told2.heldOut.before && told2.compared.after.perplexity > 1);
  assert.equal((await ternlight("slice", out, "--output", out)).status, 2);
});
