/** Many conversations on one model: places, the line for them, slow readers, several completions, a full context. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Finished, Generation, Piece } from "ternlight";
import { begun, demo, failure, GREEDY, ONCE, textOf, tokensOf } from "./support/model.ts";

const PROMPTS = ["Once upon a time", "The king had three sons", '"Good morning," said the old fox.', "One dark night"];
const ENDLESS = { temperature: 0, ignoreEos: true } as const;
const ids = (count: number, of = 7) => Array.from({ length: count }, (_, i) => 300 + ((i * of) % 997));

test("more requests than places wait for their turn, and say what each says alone", async (context) => {
  const model = await demo(context, { maxSequences: 2 });
  const options = { temperature: 0.8, seed: 5, maxTokens: 16 };
  const alone: string[] = [];
  for (const prompt of PROMPTS) alone.push((await model.generate(prompt, options).finished).text);
  const all = [...PROMPTS, ...PROMPTS].map((prompt) => model.generate(prompt, options).finished);
  const { running, waiting } = await model.status();
  // The first may have ended by then.
  assert.ok(running <= 2 && waiting > 0 && running + waiting <= 8, `${running} run, ${waiting} wait`);
  assert.deepEqual(
    (await Promise.all(all)).map(({ text }) => text),
    [...alone, ...alone],
  );
});

test("a full queue refuses", async (context) => {
  const model = await demo(context, { maxSequences: 1, maxWaiting: 1 });
  const [first, second] = [model.generate(ONCE, ENDLESS), model.generate(ONCE, GREEDY)];
  await begun(first);
  const { code, detail } = await failure(() => model.generate(ONCE, GREEDY).finished);
  assert.deepEqual([code, detail.option], ["QueueFull", "maxWaiting"]);
  first.stop();
  assert.equal((await second.finished).tokens.length, 12);
  await model.generate(ONCE, GREEDY).finished;
});

test("a reader that stops reading stops its own answer alone", async (context) => {
  const model = await demo(context, { maxSequences: 1 });
  const slow = model.generate(ONCE, { ...ENDLESS, maxTokens: 450 });
  const reader = await begun(slow);
  while ((await model.status()).paused === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  // There is one place, and the others get it.
  for (const prompt of PROMPTS) await model.generate(prompt, GREEDY).finished;
  assert.deepEqual([(await model.status()).paused, (await model.status()).running], [1, 0]);
  // Read on, it ends; nothing was lost.
  const rest: Piece[] = [];
  for (let next = await reader.next(); !next.done; next = await reader.next()) rest.push(next.value);
  const { tokens, text } = await slow.finished;
  assert.equal(tokens.length, 450);
  assert.deepEqual(tokensOf(rest), tokens.slice(1));
  assert.ok(text.endsWith(textOf(rest)));
});

test("who waits for the end need not read", async (context) => {
  const model = await demo(context);
  const { tokens } = await model.generate(ONCE, { ...ENDLESS, maxTokens: 450 }).finished;
  assert.equal(tokens.length, 450);
  assert.ok((await model.generate(ONCE, { ...ENDLESS, maxTokens: 450 }).text()).length > 450);
});

test("an ended answer gives its room back at once", async (context) => {
  const model = await demo(context);
  const abort = new AbortController();
  const three = [0, 1, 2].map((i) => model.generate(ids(100, i + 1), { ...ENDLESS, signal: abort.signal }));
  const readers = await Promise.all(three.map(begun));
  assert.ok((await model.status()).usedTokens >= 3 * 100);
  await readers[0]!.return?.();
  three[1]!.stop();
  abort.abort();
  await Promise.allSettled(three.map(({ finished }) => finished));
  const { usedTokens, running, waiting } = await model.status();
  assert.deepEqual([usedTokens, running, waiting], [0, 0, 0]);
});

test("a shared beginning is computed once, also by those who come together", async (context) => {
  const model = await demo(context);
  const system = ids(200);
  const ask = (end: number) => model.generate([...system, end], GREEDY).finished;
  const first = await ask(301);
  assert.deepEqual([first.timings.promptN, first.timings.cachedN], [201, 0]);
  const second = await ask(302);
  assert.deepEqual([second.timings.promptN, second.timings.cachedN], [9, 192]);
  const other = await demo(context, { prefixReuse: false });
  const plain = await other.generate([...system, 302], GREEDY).finished;
  assert.deepEqual([plain.tokens, plain.timings.cachedN], [second.tokens, 0]);

  const fresh = ids(200, 11);
  const crowd = await Promise.all([1, 2, 3, 4].map((end) => model.generate([...fresh, end], GREEDY).finished));
  assert.equal(
    crowd.reduce((sum, { timings }) => sum + timings.promptN, 0),
    201 + 3 * 9,
  );
});

test("several completions of one prompt", async (context) => {
  const model = await demo(context);
  const options = { temperature: 0.9, seed: 40, maxTokens: 20 };
  const prompt = ids(70);
  const generation = model.generate(prompt, { ...options, n: 3 });
  const read = ["", "", ""];
  for await (const piece of generation) read[piece.index!] += piece.text;
  const { choices, text } = await generation.finished;
  assert.equal(choices!.length, 3);
  assert.deepEqual(
    choices!.map(({ text }) => text),
    read,
  );
  assert.equal(text, read[0]);
  assert.equal(
    choices!.reduce((sum, { timings }) => sum + timings.promptN, 0),
    70 + 2 * 6,
  );
  for (const [index, { tokens }] of choices!.entries()) {
    const alone = await model.generate(prompt, { ...options, seed: 40 + index }).finished;
    assert.deepEqual(tokens, alone.tokens);
    assert.equal(alone.choices, undefined);
  }
  assert.notEqual(read[0], read[1]);
  const stopped = model.generate(prompt, { ...ENDLESS, n: 2 });
  await begun(stopped);
  stopped.stop();
  assert.deepEqual(
    (await stopped.finished).choices!.map(({ finishReason }) => finishReason),
    ["stopped", "stopped"],
  );
  const { code } = await failure(() => model.session().generate(prompt, { n: 2 } as object));
  assert.equal(code, "InvalidArgument");
});

test("a full context ends, fails or shifts", async (context) => {
  const model = await demo(context, { contextLength: 64 });
  const run = (onContextFull?: "stop" | "error" | "shift", maxTokens?: number): Generation =>
    model.generate(ONCE, { ...ENDLESS, maxTokens, onContextFull });
  const plain: Finished = await run().finished;
  assert.deepEqual([plain.finishReason, plain.tokens.length], ["length", 61]);
  const { code } = await failure(() => run("error").finished);
  assert.equal(code, "ContextFull");
  const shifted = await run("shift", 150).finished;
  assert.equal(shifted.tokens.length, 150);
  assert.deepEqual(shifted.tokens.slice(0, 61), plain.tokens);
  // The first eighth and the latest half are what the next token comes from, as if they had been the prompt.
  const all = [...ONCE, ...plain.tokens.slice(0, 60)];
  const kept = [...all.slice(0, 8), ...all.slice(32), plain.tokens[60]!];
  const fresh = await model.generate(kept, { ...ENDLESS, maxTokens: 10 }).finished;
  assert.deepEqual(shifted.tokens.slice(61, 71), fresh.tokens);

  const session = model.session();
  await session.generate(ONCE, { ...ENDLESS, onContextFull: "shift", maxTokens: 100 }).finished;
  assert.ok(session.tokens.length <= 64);
  await session.generate(ids(20), { ...ENDLESS, onContextFull: "shift", maxTokens: 30 }).finished;
  assert.equal((await failure(() => session.generate(ids(60)).finished)).code, "ContextFull");
});

test("warming up changes no answer", async (context) => {
  const model = await demo(context);
  await model.warmup();
  assert.deepEqual((await model.status()).usedTokens, 0);
  assert.equal((await model.generate(ONCE, GREEDY).finished).tokens.length, 12);
});
