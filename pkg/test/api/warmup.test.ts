/** The warm-up behind a load. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { load } from "ternlight";
import { CONTINUATION, demo, GREEDY, ONCE } from "./support/model.ts";

test("it ends by itself and keeps nothing", async (context) => {
  for (const threads of [1, 2]) {
    const model = await demo(context, { warmup: true, threads });
    await pause(3000);
    const before = process.cpuUsage();
    await pause(300);
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 150_000, `${user + system} µs of computing in 300 ms`);
    const { running, waiting, usedTokens, evictableTokens } = await model.status();
    assert.deepEqual([running, waiting, usedTokens, evictableTokens], [0, 0, 0, 0]);
    assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
    await model.close();
  }
});

test("it gives way to any call, and changes no answer", async (context) => {
  for (const after of [0, 1, 5, 20, 100]) {
    const model = await demo(context, { warmup: true });
    await pause(after);
    const { running, usedTokens } = await model.status();
    assert.deepEqual([running, usedTokens], [0, 0], `${after} ms behind the load`);
    assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
    assert.equal((await model.status()).evictableTokens, 0, "its own 16 tokens are no whole block");
    await model.close();
  }
});

test("a prompt of the load goes first", async (context) => {
  const prefill = Array.from({ length: 100 }, (_, i) => i + 1);
  const model = await demo(context, { warmup: true, prefill });
  await pause(100);
  const { timings } = await model.generate(prefill, GREEDY).finished;
  assert.equal(timings.cachedN, 99);
});

test("no state of a hybrid is kept of it", async (context) => {
  const hybrid = new URL("../../../tests/golden/models/qwen35/", import.meta.url);
  const model = await load(hybrid, { threads: 1, contextLength: 256, warmup: true });
  context.after(() => model.close());
  await pause(1500);
  assert.equal((await model.status()).usedStates, 0);
  await model.warmup();
  const { usedStates, usedTokens, evictableTokens } = await model.status();
  assert.deepEqual([usedStates, usedTokens, evictableTokens], [0, 0, 0]);
  await model.generate([1, 2, 3], GREEDY).finished;
  assert.ok((await model.status()).usedStates > 0, "of what is asked for there is one");
});
