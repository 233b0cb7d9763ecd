/** How many threads compute, against an engine whose steps take a known time. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Crowding } from "../../src/host/crowding.ts";

/** Runs steps for so many milliseconds of their own time; returns the share of it with each number of threads. */
function run(crowding: Crowding, engine: FakeEngine, ms: number, tokens = 1): Map<number, number> {
  const shares = new Map<number, number>();
  for (let passed = 0; passed < ms; ) {
    const step = engine.step();
    passed += step;
    shares.set(engine.active, (shares.get(engine.active) ?? 0) + step / ms);
    crowding.step(step, tokens);
  }
  return shares;
}

class FakeEngine {
  active = 4;
  stalls = 0;
  /** Milliseconds of a step, and stalls in it, by the number of threads. */
  cost: (active: number) => [ms: number, stalls: number] = () => [10, 0];

  setActiveThreads(count: number): number {
    this.active = count;
    return this.stalls;
  }

  step(): number {
    const [ms, stalls] = this.cost(this.active);
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

test("prompts are not compared, and one thread stays one", () => {
  const { engine, crowding } = made();
  engine.cost = (active) => (active === 4 ? [20, 3] : [5, 0]);
  assert.deepEqual([...run(crowding, engine, 5_000, 0).keys()], [4]);
  const { engine: alone, crowding: one } = made(1);
  alone.cost = () => [20, 3];
  assert.deepEqual([...run(one, alone, 5_000).keys()], [1]);
});
