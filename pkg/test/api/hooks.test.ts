/** `logitsProcessor`: what the caller's function makes of the logits decides. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogitsProcessor } from "ternlight";
import { CONTINUATION, demo, failure, GREEDY, ONCE, reason } from "./support/model.ts";

test("sees every choice with all ids so far, and changes nothing where it changes nothing", async (context) => {
  const model = await demo(context);
  const seen: number[][] = [];
  const logitsProcessor: LogitsProcessor = (logits, tokens) => {
    assert.equal(logits.length, model.info.vocab);
    seen.push(tokens);
  };
  const { tokens } = await model.generate(ONCE, { ...GREEDY, logitsProcessor }).finished;
  assert.deepEqual(tokens, CONTINUATION.tokens);
  assert.deepEqual(
    seen,
    tokens.map((_, i) => [...ONCE, ...tokens.slice(0, i)]),
  );
  const seeded = { seed: 5, temperature: 1.2, maxTokens: 12 };
  const plain = await model.generate(ONCE, seeded).finished;
  const hooked = await model.generate(ONCE, { ...seeded, logitsProcessor: async (logits) => logits.slice() }).finished;
  assert.deepEqual(hooked.tokens, plain.tokens);
});

test("forbids in place, or answers logits of its own", async (context) => {
  const model = await demo(context);
  const first = CONTINUATION.tokens[0]!;
  const ban: LogitsProcessor = (logits) => logits.fill(-Infinity, first, first + 1);
  assert.notEqual((await model.generate(ONCE, { ...GREEDY, logitsProcessor: ban }).finished).tokens[0], first);
  const only = (id: number) => () => {
    const logits = new Float32Array(model.info.vocab).fill(-Infinity);
    logits[id] = 0;
    return logits;
  };
  const seven = model.generate(ONCE, { temperature: 1, maxTokens: 3, logitsProcessor: only(7) });
  assert.deepEqual((await seven.finished).tokens, [7, 7, 7]);
});

test("others run on while one thinks, and it can be stopped or aborted meanwhile", async (context) => {
  const model = await demo(context);
  let asked = () => {};
  const begun = () => new Promise<void>((resolve) => (asked = resolve));
  const never: LogitsProcessor = () => {
    asked();
    return new Promise(() => {});
  };
  const one = begun();
  const thinking = model.generate(ONCE, { ...GREEDY, logitsProcessor: never });
  await one;
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
  thinking.stop();
  assert.equal((await thinking.finished).finishReason, "stopped");

  const controller = new AbortController();
  const two = begun();
  const doomed = model.generate(ONCE, { ...GREEDY, logitsProcessor: never, signal: controller.signal });
  await two;
  controller.abort("enough");
  assert.equal(await reason(doomed.finished), "enough");
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
});

test("what it throws rejects the generation; wrong answers are typed errors", async (context) => {
  const model = await demo(context);
  const why = new Error("mine");
  const run = (logitsProcessor: unknown) =>
    model.generate(ONCE, { ...GREEDY, logitsProcessor: logitsProcessor as LogitsProcessor }).finished;
  const thrower = () => {
    throw why;
  };
  assert.equal(await reason(run(thrower)), why);
  assert.equal(await reason(run(async () => thrower())), why);
  const codes = async (answer: unknown) => {
    const { code, detail } = await failure(() => run(() => answer));
    return [code, detail.option];
  };
  assert.deepEqual(await codes("x"), ["InvalidArgument", "logitsProcessor"]);
  assert.deepEqual(await codes(new Float32Array(3)), ["InvalidArgument", "logitsProcessor"]);
  assert.deepEqual(await codes(new Float32Array(model.info.vocab).fill(NaN)), ["InvalidArgument", "logitsProcessor"]);
  const none = await failure(() => run(() => new Float32Array(model.info.vocab).fill(-Infinity)));
  assert.deepEqual([none.code, none.detail.option], ["InvalidArgument", "logitsProcessor"]);
  assert.match(none.message, /every token is forbidden by bias, bans/);
  const { detail } = await failure(() => run("no function"));
  assert.equal(detail.option, "logitsProcessor");
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
});
