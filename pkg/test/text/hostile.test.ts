/** Files made to exhaust the host: each is refused by a typed error, in bounded time and memory. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Bpe } from "../../src/text/tokenizer_json.ts";
import { failure } from "./support/check.ts";
import { parseGguf, writeGguf } from "./support/gguf_file.ts";

/** Milliseconds that `run` takes, and the bytes of heap that it leaves. */
function cost(run: () => void): { ms: number; bytes: number } {
  const before = process.memoryUsage();
  const begun = performance.now();
  run();
  const after = process.memoryUsage();
  return {
    ms: performance.now() - begun,
    bytes: after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers,
  };
}

function scoredVocabulary(tokens: readonly string[]) {
  return parseGguf(
    writeGguf([
      { key: "tokenizer.ggml.model", value: "llama" },
      { key: "tokenizer.ggml.tokens", value: ["<unk>", "<s>", "</s>", ...tokens] },
      { key: "tokenizer.ggml.scores", value: new Float32Array(tokens.length + 3) },
    ]),
  );
}

test("a scored vocabulary whose tokens can be cut everywhere is refused while its merges are counted", () => {
  // Every cut of a token gives two other tokens: 2.1 MB of header stand for two million merges of 300 MB.
  const tokens: string[] = [];
  for (let a = 0; a <= 185; a++)
    for (let b = 0; a + b <= 185; b++) if (a + b > 0) tokens.push("a".repeat(a) + "b".repeat(b));
  const gguf = scoredVocabulary(tokens);
  assert.ok(gguf.header.length < 2_500_000);
  const { ms, bytes } = cost(() => {
    const { code, detail } = failure(() => fromGguf(gguf));
    assert.equal(code, "BadTokenizer");
    assert.equal(detail?.key, "tokenizer.ggml.tokens");
  });
  assert.ok(ms < 2000, `${ms} ms`);
  assert.ok(bytes < 32 * gguf.header.length, `${bytes} bytes for a header of ${gguf.header.length}`);
});

test("a scored vocabulary within the bounds is built", () => {
  const tokens = Array.from({ length: 300 }, (_, i) => "a".repeat(i + 1));
  const { ms, bytes } = cost(() => {
    const { json, config } = fromGguf(scoredVocabulary(tokens));
    assert.equal((json.model as Bpe).scored?.ids.length, (300 * 299) / 2);
    // All scores are equal, so neighbours merge from the left, and then those pairs.
    const ids = new Tokenizer(json, config).encode("a".repeat(4), { addSpecial: false });
    assert.deepEqual(ids, [0, 3 + 3]);
  });
  assert.ok(ms < 2000, `${ms} ms`);
  assert.ok(bytes < 256 << 20, `${bytes} bytes`);
});
