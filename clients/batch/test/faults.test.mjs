/**
 * Runs with faults on real brokers: whatever a seed does to workers, brokers, clocks, disks and who collects, the results are those of
 * one undisturbed process. `make soak` has the campaign (BATCH_FAULT_RUNS).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { missing } from "./support/brokers.mjs";
import { FAULTS, faultRun } from "./support/faults.mjs";

const RUNS = Number(process.env.BATCH_FAULT_RUNS ?? 4);
const FIRST = Number(process.env.BATCH_SEED ?? 1);

for (const kind of ["redis", "postgres"]) {
  const why = missing(kind);
  test(`faults change no byte (${kind})`, why ? { skip: `${why} is not installed` } : {}, async (context) => {
    const met = new Set();
    for (let i = 0; i < RUNS / 2; i++) {
      const found = await faultRun(FIRST + 2 * i + (kind === "redis" ? 0 : 1), kind);
      for (const name of found.faults) met.add(name);
      context.diagnostic(JSON.stringify(found));
      assert.ok(found.same, JSON.stringify(found));
    }
    if (RUNS >= 40) assert.deepEqual([...met].sort(), [...FAULTS].sort());
  });
}
