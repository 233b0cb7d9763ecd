/** Options of a load that a running model changes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type BatchingOptions, load } from "ternlight";
import { begun, demo, failure, GREEDY, ONCE } from "./support/model.ts";

const ENDLESS = { temperature: 0, ignoreEos: true, maxTokens: 1e6, onContextFull: "shift" } as const;
const until = async (holds: () => Promise<boolean>) => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 2));
};

test("places come and go while answers are written, and no answer changes", async (context) => {
  const model = await demo(context, { maxSequences: 4 });
  const prompts = Array.from({ length: 8 }, (_, i) =>
    Array.from({ length: 40 }, (_, at) => 300 + ((7 * at + i) % 997)),
  );
  const ask = (prompt: number[], i: number) =>
    model.generate(prompt, { temperature: 0.8, seed: i, ignoreEos: true, maxTokens: 96 }).finished;
  const alone: number[][] = [];
  for (const [i, prompt] of prompts.entries()) alone.push([...(await ask(prompt, i)).tokens]);
  const all = prompts.map(ask);
  const steps: BatchingOptions[] = [
    { maxSequences: 1, prefillChunk: 7 },
    { maxSequences: 8, maxBatchTokens: 5 },
    { scheduling: "fcfs", maxBatchTokens: 200, prefillChunk: 64 },
    { maxSequences: 2, scheduling: "fair" },
  ];
  for (const step of steps) {
    await model.configure(step);
    assert.equal(model.info.maxSequences, step.maxSequences ?? 8);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(
    (await Promise.all(all)).map(({ tokens }) => [...tokens]),
    alone,
  );
});

test("more places are taken at once, and fewer are kept until they are free", async (context) => {
  const model = await demo(context, { maxSequences: 2 });
  const abort = new AbortController();
  const four = [0, 1, 2, 3].map((i) => model.generate([...ONCE, 300 + i], { ...ENDLESS, signal: abort.signal }));
  for (const one of four) one.finished.catch(() => {});
  await Promise.all(four.slice(0, 2).map(begun));
  assert.deepEqual([(await model.status()).running, (await model.status()).waiting], [2, 2]);
  await model.configure({ maxSequences: 4 });
  await until(async () => (await model.status()).running + (await model.status()).paused === 4);
  await model.configure({ maxSequences: 1 });
  assert.equal((await model.status()).waiting, 0);
  abort.abort();
  assert.equal((await model.generate(ONCE, GREEDY).finished).tokens.length, 12);
});

test("the queue takes as many as it is told to", async (context) => {
  const model = await demo(context, { maxSequences: 1, maxWaiting: 0 });
  const first = model.generate(ONCE, ENDLESS);
  await begun(first);
  // One that nobody reads would rest, and leave its place to others.
  const ended = first.finished;
  assert.equal((await failure(() => model.generate(ONCE, GREEDY).finished)).code, "QueueFull");
  await model.configure({ maxWaiting: 1 });
  const second = model.generate(ONCE, GREEDY);
  const { code, detail } = await failure(() => model.generate(ONCE, GREEDY).finished);
  assert.deepEqual([code, detail.expected], ["QueueFull", "at most 1 that run and 1 that wait"]);
  first.stop();
  await ended;
  assert.equal((await second.finished).tokens.length, 12);
});

test("what needs more memory than the load has reserved is refused by name, and nothing changes", async (context) => {
  const model = await demo(context, { maxSequences: 3, prefillChunk: 32 });
  const { memoryBytes } = await model.status();
  for (const [option, found] of Object.entries({ prefillChunk: 35, maxSequences: 64, maxBatchTokens: 36 })) {
    const { code, message, detail } = await failure(() => model.configure({ [option]: found }));
    assert.deepEqual([code, detail], ["InvalidArgument", { option, expected: "at most 34", found: String(found) }]);
    assert.equal(
      message,
      `option ${option}: the load reserved memory for smaller batches: expected at most 34, found ${found}`,
    );
  }
  assert.equal(model.info.maxSequences, 3);
  await model.configure({ maxSequences: 34, prefillChunk: 34, maxBatchTokens: 34 });
  // As at the load, where it went no further than the memory does.
  await model.configure({ maxBatchTokens: 2048 });
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens.length, 12);
  assert.equal((await model.status()).memoryBytes, memoryBytes);
  for (const [options, option] of [
    [{ contextLength: 64 }, "contextLength"],
    [{ maxSequences: 0 }, "maxSequences"],
    [{ scheduling: "lifo" }, "scheduling"],
  ] as const) {
    const { code, detail } = await failure(() => model.configure(options as BatchingOptions));
    assert.deepEqual([code, detail.option], ["InvalidArgument", option]);
  }
});

test("on a hybrid no more requests run than have states", async (context) => {
  const hybrid = new URL("../../../tests/golden/models/qwen35/", import.meta.url);
  for (const [states, asked, runs] of [
    [3, undefined, 3],
    [3, 8, 3],
    [3, 2, 2],
    [12, undefined, 8],
  ]) {
    const options = { threads: 1, contextLength: 256, recurrentStates: states, maxSequences: asked };
    const model = await load(hybrid, options);
    context.after(() => model.close());
    assert.equal(model.info.maxSequences, runs);
    // One that nobody reads would rest, and leave its place to others.
    const all = Array.from({ length: 8 }, (_, i) => model.generate([3, 4, 5 + i], ENDLESS));
    const ended = Promise.all(all.map(({ finished }) => finished));
    await Promise.all(all.slice(0, runs).map(begun));
    const { running, paused, waiting } = await model.status();
    assert.deepEqual([running + paused, waiting], [runs, 8 - runs!]);
    for (const one of all) one.stop();
    await ended;
    await model.configure({ prefillChunk: 32 });
    assert.equal(model.info.maxSequences, runs);
    await model.configure({ maxSequences: 1 });
    await model.configure({ maxSequences: asked ?? 8 });
    assert.equal(model.info.maxSequences, runs);
    await model.close();
  }
});
