/** How a text becomes the ids that a session reads. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { encodePrompt } from "../../src/host/prompt.ts";
import { Text } from "../../src/host/text.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { tokenizerFiles } from "../text/support/golden.ts";

/** A tokenizer with one very long token, and one for every four characters of others, that tells how many it has read. */
function text(): { text: Text; read: number[] } {
  const read: number[] = [];
  const tokenizer = {
    longest: 1000,
    encode(all: string) {
      read.push(all.length);
      const spaces = all.length - all.trimEnd().length;
      return Array.from({ length: Math.ceil((all.length - spaces) / 4) + Math.ceil(spaces / 1000) }, () => 1);
    },
  };
  return { text: { tokenizer } as unknown as Text, read };
}

const options = { sanitize: false, shift: false };
const prompt = (of: string) => ({ text: of, addSpecial: false });

test("a text that cannot fit is refused by its beginning", () => {
  const long = text();
  assert.throws(() => encodePrompt(long.text, 100, prompt("word".repeat(20_000)), false, options), {
    code: "ContextFull",
    message: /the first 1600 of the prompt's 80000 characters are 400 tokens; the context holds 100/,
  });
  assert.deepEqual(long.read, [1600]);
});

test("a text of long tokens is read whole, and so is one of which a part may go", () => {
  const spaces = text();
  assert.equal(encodePrompt(spaces.text, 100, prompt(" ".repeat(80_000)), false, options).length, 80);
  assert.deepEqual(spaces.read, [1600, 80_000]);
  const cut = text();
  encodePrompt(cut.text, 100, prompt("word".repeat(20_000)), false, {
    ...options,
    truncate: { side: "left", free: 1 },
  });
  assert.deepEqual(cut.read, [80_000]);
  const short = text();
  encodePrompt(short.text, 100, prompt("word".repeat(400)), false, options);
  assert.deepEqual(short.read, [1600]);
});

test("a tokenizer with ids that the model has not is told", () => {
  const { json, config } = tokenizerFiles("tiny_llama3");
  const one = { id: 600, content: "<more>", special: true, single_word: false, lstrip: false, rstrip: false };
  const added_tokens = [...(json.added_tokens ?? []), { ...one, normalized: false }];
  const tokenizer = new Tokenizer({ ...json, added_tokens }, config);
  const text = new Text(tokenizer, null, { sampling: {}, ends: [] }, "mean");
  assert.deepEqual(text.warningsFor(601), []);
  assert.match(text.warningsFor(512).join(), /the tokenizer's ids go to 600, the model's to 511/);
});
