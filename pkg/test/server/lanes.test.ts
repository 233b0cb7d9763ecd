/** Parts of one request that get places late, or none. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inLanes } from "../../src/server/lanes.ts";
import { EngineError } from "../../src/types/errors.ts";

const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const full = () => new EngineError("QueueFull", "too many requests wait already");

/** An engine that decides upon one request in so many milliseconds, in turn, and has so many places at first. */
function engine(places: number, ms: number) {
  let turn: Promise<unknown> = Promise.resolve();
  let [free, tries, taken, most] = [places, 0, 0, 0];
  return {
    tries: () => tries,
    /** Places that were taken at once. */
    most: () => most,
    add: (more: number) => {
      free += more;
    },
    async work(): Promise<void> {
      tries++;
      turn = turn.then(() => later(ms));
      await turn;
      if (free === 0) throw full();
      free--;
      most = Math.max(most, ++taken);
      await later(50);
      taken--;
      free++;
    },
  };
}

for (const ms of [0, 15, 40]) {
  test(`a request without a place is refused by an engine that says so every ${ms} ms`, { timeout: 5000 }, async () => {
    for (const count of [1, 2, 8, 16]) {
      const { work, tries } = engine(0, ms);
      await assert.rejects(inLanes(count, work), { code: "QueueFull" });
      assert.ok(tries() < 200);
    }
  });

  test(`parts wait for one place of an engine that decides every ${ms} ms`, { timeout: 60_000 }, async () => {
    const { work } = engine(1, ms);
    let done = 0;
    await inLanes(12, async () => {
      await work();
      done++;
    });
    assert.equal(done, 12);
  });
}

test("parts that were refused take places that others leave", async () => {
  const { work, add, most } = engine(1, 1);
  const all = inLanes(30, work);
  await later(30);
  assert.equal(most(), 1);
  add(7);
  await all;
  assert.ok(most() > 4, `${most()} at once`);
});

test("another error ends all parts", async () => {
  let begun = 0;
  const failing = async () => {
    begun++;
    await later(1);
    throw new Error("broken");
  };
  await assert.rejects(inLanes(100, failing), { message: "broken" });
  assert.ok(begun <= 8);
});
