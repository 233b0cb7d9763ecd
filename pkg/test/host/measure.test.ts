/** Whose steps a measurement counts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { EngineLoop } from "../../src/host/loop.ts";
import { measure } from "../../src/host/verbs/measure.ts";

/** Longer than steps are timed between two turns. */
const STEP_MS = 10;

test("a measurement counts all of its steps, though a run of the loop waits for its turn", async (context) => {
  let now = 0;
  context.mock.method(performance, "now", () => now);
  let left = 0;
  let made = 0;
  const engine = {
    open: () => 0,
    close() {},
    submit: (_session: number, ids: Uint32Array, { maxTokens }: { maxTokens: number }) =>
      (left += ids.length || maxTokens),
    busy: () => left > 0,
    step() {
      now += STEP_MS;
      left--;
      made++;
      return [];
    },
    served: () => new Uint32Array(),
    tally: () => [made, made],
    profile: () => [],
  };
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  const loop = new EngineLoop(engine as never, turn, assert.ifError);
  const parts = [{ memory: { buffer: new ArrayBuffer(8) }, glue: { operations: () => "head" } }];
  const state = { model: { engine, parts, loop }, platform: { turn } };
  const asked = { signal: new AbortController().signal, send() {} };

  // As a load does at its end: what calls next may come before the run's first turn.
  loop.start();
  const args = { past: [], prompts: [[1, 2, 3]], decode: 8, profile: false };
  const run = await measure(state as never, args, asked as never);
  assert.deepEqual(
    [run.prefill.steps, run.decode.steps].map((steps) => steps.length),
    [3, 8],
  );
  assert.equal(run.decode.weightBytes, 8);

  // What `work` leaves is stepped afterwards.
  await loop.alone(async () => {
    left = 3;
    loop.start();
    for (let i = 0; i < 5; i++) await turn();
    assert.equal(left, 3, "work is alone");
  });
  for (let i = 0; i < 5; i++) await turn();
  assert.equal(left, 0);
});
