/** What is too long for a model is refused before it takes memory, which the engine could never give back. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import type { EngineError } from "../../src/types/errors.ts";

const DEMO = new URL("../../models/ternlight-demo/", import.meta.url);
const MIB = 2 ** 20;

const fails = async (work: () => Promise<unknown>): Promise<EngineError> => {
  const error = await work().then(
    () => assert.fail("it did not fail"),
    (error) => error,
  );
  assert.equal(error.name, "EngineError", error);
  return error;
};

test("a session that is none, or too large to be one, takes no memory", async (context) => {
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  const own = model.session();
  await own.generate([1, 5, 9], { maxTokens: 4 }).finished;
  const saved = await own.save();
  await model.restoreSession(saved);
  const { memoryBytes } = await model.status();

  const restored = async (restore: Uint8Array) =>
    (await fails(() => Promise.resolve(model.restoreSession(restore)))).code;
  assert.equal(await restored(new Uint8Array(300 * MIB)), "BadMagic");
  const large = new Uint8Array(300 * MIB);
  large.set(saved);
  assert.equal(await restored(large), "WrongModel");
  new DataView(large.buffer).setUint32(12, 1e6, true);
  assert.equal(await restored(large), "ContextFull");
  for (const cut of [8, 39]) assert.equal(await restored(saved.subarray(0, cut)), "Damaged");
  assert.equal((await model.status()).memoryBytes, memoryBytes);
});

test("more ids than the context has positions take no memory", async (context) => {
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  const { memoryBytes } = await model.status();
  const many: number[] = new Array(4_000_000).fill(5);
  const calls = [
    () => model.generate(many, { maxTokens: 1 }).finished,
    () => model.logits(many),
    () => model.session().generate(many).finished,
  ];
  for (const call of calls) {
    const { code, detail } = await fails(call);
    assert.deepEqual([code, detail.option, detail.found], ["ContextFull", "contextLength", "4000000"]);
  }
  const shifted = await model.generate(many, { maxTokens: 1, onContextFull: "shift" }).finished;
  assert.ok(shifted.promptTokens.length <= model.info.contextLength);
  assert.equal((await model.status()).memoryBytes, memoryBytes);
});
