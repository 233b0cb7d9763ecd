/** How many threads compute, against an engine whose steps take a known time. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Crowding } from "../../src/host/crowding.ts";

/**
 * Runs steps for so many milliseconds of their own time, which give these numbers of tokens by turns; returns the share of it with
 * each number of threads.
 */
function run(crowding: Crowding, engine: FakeEngine, ms: number, ...tokens: number[]): Map<number, number> {
  const shares = new Map<number, number>();
  for (let [passed, i] = [0, 0]; passed < ms; i++) {
    const given = tokens[i % tokens.length] ?? 1;
    const step = engine.step(given);
    passed += step;
    shares.set(engine.active, (shares.get(engine.active) ?? 0) + step / ms);
    crowding.step(step, given);
  }
  return shares;
}

class FakeEngine {
  active = 4;
  stalls = 0;
  /** Milliseconds of a step, and stalls in it, by the numbers of threads and of tokens. */
  cost: (active: number, tokens: number) => [ms: number, stalls: number] = () => [10, 0];

  setActiveThreads(count: number): number {
    this.active = count;
    return this.stalls;
  }

  step(tokens: number): number {
    const [ms, stalls] = this.cost(this.active, tokens);
    this.stalls += stalls;
    return ms;
  }
}

const made = (threads = 4) => {
  const engine = new FakeEngine();
  engine.active = threads;
  return { engine, crowding: new Crowding(engine, threads) };
};

test("an engine that has its cores computes with all threads, always", () => {
  const { engine, crowding } = made();
  // Fewer would be faster: nobody tries without a reason.
  engine.cost = (active) => [active === 4 ? 10 : 5, 0];
  assert.deepEqual([...run(crowding, engine, 20_000).keys()], [4]);
});

test("where threads lose their cores and fewer are faster, one yields, until the cores are free again", () => {
  const { engine, crowding } = made();
  engine.cost = (active) => (active === 4 ? [20, 1] : [12, 0]);
  const busy = run(crowding, engine, 10_000);
  assert.ok(busy.get(3)! > 0.85, `${busy.get(3)}`);
  assert.equal(crowding.active, 3);
  engine.cost = (active) => [active === 4 ? 9 : 12, 0];
  run(crowding, engine, 20_000);
  assert.equal(crowding.active, 4);
  assert.deepEqual([...run(crowding, engine, 10_000).keys()], [4]);
});

test("where threads lose their cores and fewer are no faster, trials become rare", () => {
  const { engine, crowding } = made(2);
  engine.cost = (active) => (active === 2 ? [20, 1] : [20, 0]);
  run(crowding, engine, 10_000);
  const later = run(crowding, engine, 60_000);
  assert.ok((later.get(1) ?? 0) < 0.02, `${later.get(1)} of the time with one thread fewer`);
});

test("steps whose numbers of tokens alternate are measured too, each with its like", () => {
  const { engine, crowding } = made();
  // A right guess gives two tokens for a dearer step.
  engine.cost = (active, tokens) => (active === 4 ? [20 * tokens, 1] : [12 * tokens, 0]);
  run(crowding, engine, 10_000, 1, 2);
  assert.equal(crowding.active, 3);
  engine.cost = (active, tokens) => [(active === 4 ? 9 : 12) * tokens, 0];
  run(crowding, engine, 20_000, 1, 1, 2);
  assert.equal(crowding.active, 4);
});

test("a trial whose steps have nothing to compare with leaves the threads as they were", () => {
  const { engine, crowding } = made();
  engine.cost = (active) => [active === 4 ? 20 : 12, 1];
  while (engine.active === 4) crowding.step(engine.step(1), 1);
  // Other conversations have begun in the middle of it.
  for (let ms = 0; engine.active === 3 && ms < 1000; ms += 12) crowding.step(engine.step(8), 8);
  assert.equal(engine.active, 4);
});

test("the first steps, of code that is not compiled well yet, start no trial", () => {
  const { engine, crowding } = made();
  engine.cost = (active) => (active === 4 ? [40, 5] : [5, 0]);
  assert.deepEqual([...run(crowding, engine, 500).keys()], [4]);
});

test("prompts are not compared, and one thread stays one", () => {
  const { engine, crowding } = made();
  engine.cost = (active) => (active === 4 ? [20, 3] : [5, 0]);
  assert.deepEqual([...run(crowding, engine, 5_000, 0).keys()], [4]);
  const { engine: alone, crowding: one } = made(1);
  alone.cost = () => [20, 3];
  assert.deepEqual([...run(one, alone, 5_000).keys()], [1]);
});
