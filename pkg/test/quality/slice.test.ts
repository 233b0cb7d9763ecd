/** Vocabularies that are cut: what stays encodes as before, computes the same bits, and everything else still encodes. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { load, type Model } from "ternlight";
import { slice } from "ternlight/quality";
import { json, ternlight } from "../cli/support/ternlight.ts";
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
      const prompt = (await a.tokenize(sentences.slice(0, 4).join(""))).slice(0, 96);
      const mapped = prompt.map((id) => ids.indexOf(id));
      if (!mapped.includes(-1)) {
        const [rows, others] = await Promise.all([a.logits(prompt, { all: true }), b.logits(mapped, { all: true })]);
        for (const [at, row] of rows.entries()) {
          assert.deepEqual(
            others[at],
            Float32Array.from(ids, (id) => row[id]!),
            `position ${at}`,
          );
        }
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

test("what is wrong is refused by name", async () => {
  const whole = trained();
  const code = (code: string, option?: string) => (error: { code: string; detail: { option?: string } }) =>
    error.code === code && (option === undefined || error.detail.option === option);
  await assert.rejects(slice(whole, { keep: 100, text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { keep: 5000, text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { text: "a" }), code("InvalidArgument", "keep"));
  await assert.rejects(slice(whole, { tokens: [99_999] }), code("BadValue", "tokens"));
  await assert.rejects(slice(whole, { tokens: ["no such token"] }), code("BadValue", "tokens"));
  await assert.rejects(slice(new TextEncoder().encode("no model at all"), { tokens: [1] }), code("BadMagic"));
  await assert.rejects(slice(whole.slice(0, 1000), { tokens: [1] }), code("BadHeader"));
});

test("the command slices any source, also safetensors", async (context) => {
  const folder = await folderOf(context, { "text.txt": new TextEncoder().encode(demoText()) });
  const [text, out] = [path.join(folder, "text.txt"), path.join(folder, "small.gguf")];
  const told = await json("slice", "ternlight-demo", "--keep", "1000", "--text", text, "--output", out);
  assert.deepEqual([told.before, told.after, told.bytesAfter], [4096, 1000, (await readFile(out)).length]);
  const shown = await ternlight("run", out, "-p", "Once upon a time", "-n", "8", "--temp", "0");
  assert.equal(shown.status, 0);
  assert.notEqual(shown.stdout.trim(), "");
  assert.equal((await ternlight("slice", out, "--keep", "900", "--text", text, "--output", out)).status, 1);
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
  assert.equal((await ternlight("slice", out, "--output", out)).status, 2);
});
