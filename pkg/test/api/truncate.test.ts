/** Prompts that are longer than the context, cut where the caller says. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { demo, failure } from "./support/model.ts";

const ids = Array.from({ length: 100 }, (_, i) => 300 + i);
const options = { maxTokens: 8, temperature: 0, ignoreEos: true } as const;

test("ids lose the side that is named, and leave room for the answer", async (context) => {
  const model = await demo(context, { contextLength: 64 });
  assert.equal((await failure(() => model.generate(ids, options).finished)).code, "ContextFull");
  const kept = {
    left: ids.slice(-56),
    right: ids.slice(0, 56),
    middle: [...ids.slice(0, 28), ...ids.slice(-28)],
  };
  for (const [truncate, expected] of Object.entries(kept)) {
    const found = await model.generate(ids, { ...options, truncate: truncate as "left" }).finished;
    assert.deepEqual(found.promptTokens, expected, truncate);
    assert.deepEqual([found.truncatedTokens, found.tokens.length], [44, 8]);
    const alone = await model.generate(expected, options).finished;
    assert.deepEqual(found.tokens, alone.tokens);
    assert.equal(alone.truncatedTokens, undefined);
  }
  // Without a limit, a quarter of the context is left.
  const open = await model.generate(ids, { truncate: "left", temperature: 0, ignoreEos: true }).finished;
  // The last token of an answer needs no place.
  assert.deepEqual([open.promptTokens.length, open.tokens.length], [48, 17]);
  const fits = await model.generate(ids.slice(0, 20), { ...options, truncate: "left" }).finished;
  assert.equal(fits.truncatedTokens, undefined);
  const wrong = await failure(() => model.generate(ids, { truncate: "top" as never }).finished);
  assert.equal(wrong.detail.option, "truncate");
});

test("a text of any length is cut, and so is what a session cannot hold", async (context) => {
  const model = await demo(context, { contextLength: 64 });
  const text = `${"the king and the queen ".repeat(20_000)}had a daughter`;
  const { promptTokens } = await model.generate(text, { ...options, truncate: "left" }).finished;
  assert.equal(promptTokens.length, 56);
  assert.ok((await model.detokenize(promptTokens)).endsWith("had a daughter"));
  const begin = await model.generate(text, { ...options, truncate: "right" }).finished;
  assert.ok((await model.detokenize(begin.promptTokens)).startsWith("the king and"));
  const session = model.session();
  await session.generate(ids.slice(0, 20), options).finished;
  const next = await session.generate(ids, { ...options, truncate: "left" }).finished;
  assert.deepEqual(next.promptTokens, ids.slice(-next.promptTokens.length));
  assert.ok(next.promptTokens.length <= 64 - 28 - 8 && next.tokens.length === 8);
});

test("all tokens that are left out of a long text are counted", async (context) => {
  const model = await demo(context, { contextLength: 64 });
  for (const words of [100, 2000, 10_000]) {
    const text = "word ".repeat(words);
    const { promptTokens, truncatedTokens } = await model.generate(text, { ...options, truncate: "left" }).finished;
    assert.equal(promptTokens.length + truncatedTokens!, await model.countTokens(text), `${words} words`);
  }
});

test("a chat is cut, too", async (context) => {
  const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
  const model = await demo(context, { contextLength: 64, chatTemplate });
  const messages = [{ role: "user", content: "the king and the queen ".repeat(50) }];
  const { promptTokens, truncatedTokens } = await model.chat(messages, { ...options, truncate: "middle" }).finished;
  assert.equal(promptTokens.length, 56);
  assert.ok(truncatedTokens! > 100);
});
