import assert from "node:assert/strict";
import { test } from "node:test";
import { Course, grewBy } from "../../src/bench/over_time.ts";

/** A course of pieces of one second, whose speed and memory are functions of the time. */
function course(seconds: number, speed: (at: number) => number, bytes: (at: number) => number | null = () => 100) {
  const made = new Course(seconds);
  for (let at = 1; at <= seconds; at++) {
    made.add({ at, seconds: 1, tokens: speed(at), wasmBytes: 1000, processBytes: bytes(at) });
  }
  return made.report();
}

test("a machine that throttles shows in the last minute", () => {
  const { first, last, speed, spans, seconds, growth } = course(600, (at) => (at <= 300 ? 100 : 60));
  assert.deepEqual([first.tokensPerSecond, last.tokensPerSecond, speed], [100, 60, 0.6]);
  assert.deepEqual([first.from, first.to, last.from, last.to, seconds], [0, 60, 540, 600, 600]);
  assert.equal(spans.length, 120);
  assert.deepEqual([spans[10]!.tokensPerSecond, spans[110]!.tokensPerSecond], [100, 60]);
  assert.deepEqual(growth, { wasm: 0, process: 0 });
});

test("the last minute is the last one, also where the speed changes just before it", () => {
  const { last } = course(600, (at) => (at <= 530 ? 100 : 50));
  assert.equal(last.tokensPerSecond, 50);
  const { last: edge } = course(600, (at) => (at <= 540 ? 100 : 50));
  assert.equal(edge.tokensPerSecond, 50);
});

test("growth is what is between the means of both ends", () => {
  const leaking = course(
    600,
    () => 10,
    (at) => 1000 + at,
  );
  const [before, after] = [1030.5, 1570.5];
  assert.ok(Math.abs(leaking.growth.process! - (after / before - 1)) < 0.005, `${leaking.growth.process}`);
  assert.ok(grewBy(leaking, 50) && !grewBy(leaking, 53));
  const steady = course(
    600,
    () => 10,
    (at) => 1000 + (at % 100),
  );
  assert.ok(!grewBy(steady, 5), "what comes and goes is no growth");
  assert.ok(grewBy({ ...steady, growth: { wasm: 0.06, process: null } }, 5));
  const untold = course(
    30,
    () => 10,
    () => null,
  );
  assert.equal(untold.growth.process, null);
  assert.equal(untold.first.processBytes, null);
});

test("a short run compares its thirds, and one piece is enough", () => {
  const { first, last } = course(9, (at) => at);
  assert.deepEqual([first.from, first.to, first.tokens], [0, 3, 6]);
  assert.equal(last.to, 9);
  assert.ok(last.tokens >= 7 + 8 + 9);
  const slow = new Course(10);
  slow.add({ at: 14, seconds: 14, tokens: 28, wasmBytes: 1, processBytes: 1 });
  const { speed, spans } = slow.report();
  assert.equal(speed, 1);
  assert.equal(spans.length, 1);
});

test("a day takes no more room than ten minutes", () => {
  const { spans, first, last } = course(86400, () => 5);
  assert.equal(spans.length, 120);
  assert.deepEqual([first.tokens, Math.round(last.tokens / 5)], [300, 60]);
});
