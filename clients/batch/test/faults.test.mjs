/**
 * Runs with faults on real brokers: whatever a seed does to workers, brokers, clocks, disks and who collects, the results are those of
 * one undisturbed process. `make soak` has the campaign (BATCH_FAULT_RUNS).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { missing } from "./support/brokers.mjs";
import { FAULTS, faultRun } from "./support/faults.mjs";

const RUNS = Number(process.env.BATCH_FAULT_RUNS ?? 6);
const FIRST = Number(process.env.BATCH_SEED ?? 1);

const KINDS = ["redis", "postgres", "database"];

for (const [at, kind] of KINDS.entries()) {
  const why = missing(kind);
  test(`faults change no byte (${kind})`, why ? { skip: `${why} is not installed` } : {}, async (context) => {
    const met = new Set();
    let small = false;
    for (let i = 0; i < RUNS / KINDS.length; i++) {
      const found = await faultRun(FIRST + KINDS.length * i + at, kind);
      for (const name of found.faults) met.add(name);
      small = found.small;
      context.diagnostic(JSON.stringify(found));
      assert.ok(found.same, JSON.stringify(found));
    }
    // Not every machine lets a disk be mounted that may be full.
    const possible = FAULTS.filter((name) => name !== "disk" || small);
    if (RUNS >= 60) assert.deepEqual([...met].sort(), possible.sort());
  });
}
