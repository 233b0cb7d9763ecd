/** Sessions that fork, go back, and go on in another process. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import { demo, failure, GREEDY } from "./support/model.ts";

const ids = (count: number, of = 7) => Array.from({ length: count }, (_, i) => 300 + ((i * of) % 997));
const MORE = { temperature: 0.8, seed: 9, maxTokens: 12 };

test("a fork goes its own way from what is there", async (context) => {
  const model = await demo(context);
  const session = model.session();
  await session.generate(ids(100), GREEDY).finished;
  const fork = await session.fork();
  assert.deepEqual(fork.tokens, session.tokens);
  const before = [...session.tokens];
  const [one, two] = await Promise.all([
    session.generate([301], GREEDY).finished,
    fork.generate([302], GREEDY).finished,
  ]);
  for (const [end, { tokens, timings }] of [
    [301, one],
    [302, two],
  ] as const) {
    assert.deepEqual(tokens, (await model.generate([...before, end], GREEDY).finished).tokens);
    // The last token of an answer is computed with what follows it.
    assert.deepEqual([timings.promptN, timings.cachedN, timings.recomputedN], [1, before.length - 1, 1]);
  }
  await session.close();
  await fork.generate([5], GREEDY).finished;
});

test("a session goes back", async (context) => {
  const model = await demo(context);
  const session = model.session();
  await session.generate(ids(70), GREEDY).finished;
  await session.rewind(12 + 20);
  assert.deepEqual(session.tokens, ids(50));
  const { tokens, timings } = await session.generate([8, 9], MORE).finished;
  assert.deepEqual(tokens, (await model.generate([...ids(50), 8, 9], MORE).finished).tokens);
  assert.deepEqual([timings.promptN, timings.cachedN, timings.recomputedN], [2, 50, undefined]);
  assert.equal((await failure(() => session.rewind(1000))).code, "InvalidArgument");
  await session.rewind(session.tokens.length);
  assert.deepEqual(session.tokens, []);
});

test("a saved session goes on elsewhere, bit for bit", async (context) => {
  const model = await demo(context);
  const session = model.session();
  await session.generate(ids(100), GREEDY).finished;
  const bytes = await session.save();
  const expected = await session.generate([7], MORE).finished;

  // Another worker and instance, with threads.
  const other = await demo(context, { threads: 2 });
  const restored = await other.restoreSession(bytes);
  assert.deepEqual(restored.tokens, session.tokens.slice(0, 112));
  const found = await restored.generate([7], MORE).finished;
  assert.deepEqual(found.tokens, expected.tokens);
  // Whole blocks of 32 are kept of the 112.
  const { cachedN, promptN, recomputedN } = found.timings;
  assert.deepEqual([cachedN, promptN, recomputedN], [96, 1, 16]);
  assert.ok(Math.abs((found.timings.promptPerSecond * found.timings.promptMs) / 1000 - 17) < 1e-6);
  // What came from outside is nobody else's.
  assert.equal((await other.generate([...ids(100), 1], GREEDY).finished).timings.cachedN, 0);
  assert.deepEqual(await other.logits(restored.tokens), await model.logits(session.tokens));
  assert.deepEqual((await other.restoreSession(await restored.save())).tokens, restored.tokens);
});

for (const kv of ["f16", "fp8", "q8", "q4", "q2"] as const) {
  test(`a session saved with ${kv} goes on, bit for bit`, async (context) => {
    const model = await demo(context, { kvCacheType: kv });
    const session = model.session();
    await session.generate(ids(70), GREEDY).finished;
    const bytes = await session.save();
    const expected = await session.generate([7], MORE).finished;
    const other = await demo(context, { kvCacheType: kv });
    const restored = await other.restoreSession(bytes);
    const { tokens, timings } = await restored.generate([7], MORE).finished;
    assert.deepEqual([tokens, timings.promptN], [expected.tokens, 1]);
    assert.equal(timings.promptN + timings.cachedN + timings.recomputedN!, restored.tokens.length - tokens.length);
    assert.deepEqual(await other.logits(restored.tokens), await model.logits(session.tokens));
  });
}

test("a hybrid's session that is larger than its cache, by its state, goes on elsewhere", async (context) => {
  const hybrid = async () => {
    const source = new URL("../../../tests/golden/models/qwen35/", import.meta.url);
    const model = await load(source, { threads: 1, contextLength: 128, kvCacheTokens: 160 });
    context.after(() => model.close());
    return model;
  };
  const model = await hybrid();
  const session = model.session();
  await session.generate([1, 5, 9, 2, 30], { maxTokens: 100, ignoreEos: true, temperature: 0 }).finished;
  const bytes = await session.save();
  assert.ok(bytes.length > model.info.memory.kv + 4 * 128 + 40);
  const restored = await (await hybrid()).restoreSession(bytes);
  assert.deepEqual(restored.tokens, session.tokens);
  const [found, expected] = await Promise.all(
    [restored, session].map((one) => one.generate([7], { ...MORE, ignoreEos: true }).finished),
  );
  assert.deepEqual(found!.tokens, expected!.tokens);
  assert.equal(found!.timings.promptN, 1);
  const large = new Uint8Array(bytes.length + model.info.memory.states + 1e6);
  large.set(bytes);
  assert.equal((await failure(() => model.restoreSession(large))).code, "WrongModel");
});

test("what is no session of this model is refused", async (context) => {
  const model = await demo(context);
  const session = model.session();
  await session.generate(ids(40), GREEDY).finished;
  const bytes = await session.save();
  const changed = (at: number) => bytes.with(at, bytes[at]! ^ 2);
  const cases: [string, Uint8Array][] = [
    ["BadMagic", new Uint8Array(100)],
    ["BadMagic", new Uint8Array(0)],
    ["UnsupportedVersion", changed(8)],
    ["Damaged", changed(12)],
    ["Damaged", changed(bytes.length - 1000)],
    ["Damaged", bytes.subarray(0, bytes.length - 8)],
  ];
  for (const [code, restore] of cases) assert.equal((await failure(() => model.restoreSession(restore))).code, code);
  const half = await demo(context, { kvCacheType: "f16" });
  assert.equal((await failure(() => half.restoreSession(bytes))).code, "WrongModel");
  const golden = new URL("../../../tests/golden/gguf/llama_bitlinear.TQ2_0.gguf", import.meta.url);
  const stranger = await load(golden, { threads: 1 });
  context.after(() => stranger.close());
  assert.equal((await failure(() => stranger.restoreSession(bytes))).code, "WrongModel");
  assert.equal((await failure(() => model.restoreSession("x" as never))).code, "InvalidArgument");
});
