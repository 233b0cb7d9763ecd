/** Whose steps a measurement counts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { EngineEvent } from "../../src/host/events.ts";
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
  await loop.alone(asked.signal, async () => {
    left = 3;
    loop.start();
    for (let i = 0; i < 5; i++) await turn();
    assert.equal(left, 3, "work is alone");
  });
  for (let i = 0; i < 5; i++) await turn();
  assert.equal(left, 0);
});

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

test("a request that comes during a measurement gets its events, and fails for itself alone", async () => {
  const pending: EngineEvent[][] = [];
  let requests = 0;
  const engine = {
    open: () => 0,
    close() {},
    submit() {
      const request = ++requests;
      // The second is another's, which fails.
      const error = new Error("of the other");
      pending.push(
        request === 2 ? [{ type: "failed", request, error }] : [{ type: "finished", request, reason: "length" }],
      );
      return request;
    },
    busy: () => pending.length > 0,
    step: () => pending.shift()!,
    served: () => new Uint32Array(),
    tally: () => [0, 0],
    profile: () => [],
  };
  const heard: EngineEvent[] = [];
  let slices = 0;
  const loop = new EngineLoop(engine as never, turn, assert.ifError);
  const other = { onEvent: (event: EngineEvent) => void heard.push(event), onSlice: () => void slices++ };
  const profile = () => {
    // A message that is read before the first step begins another request.
    if (requests === 1) loop.submit(1, [1], { type: "logits", all: false }, other);
    return [];
  };
  const parts = [{ memory: { buffer: new ArrayBuffer(8) }, glue: { operations: () => "head" } }];
  const state = { model: { engine: Object.assign(engine, { profile }), parts, loop }, platform: { turn } };
  const args = { past: [], prompts: [[1]], decode: 1, profile: false };
  await measure(state as never, args, { signal: new AbortController().signal, send() {} } as never);
  assert.deepEqual([heard.map(({ type }) => type), slices], [["failed"], 1]);
});

test("an abort ends the wait to be alone, and nothing is measured", { timeout: 10_000 }, async () => {
  const loop = new EngineLoop({ busy: () => false } as never, turn, assert.ifError);
  const { signal } = new AbortController();
  let end = () => {};
  const first = loop.alone(signal, () => new Promise<void>((resolve) => (end = resolve)));
  const abort = new AbortController();
  const second = loop.alone(abort.signal, async () => assert.fail("it was measured"));
  const third = loop.alone(signal, async () => "in its turn");
  abort.abort(new Error("enough"));
  await assert.rejects(second, { message: "enough" });
  end();
  await first;
  assert.equal(await third, "in its turn");
});
