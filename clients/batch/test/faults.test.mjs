/**
 * Runs with faults on real brokers: whatever a seed does to workers, brokers, clocks, disks and who collects, the results are those of
 * one undisturbed process. `make soak` has the campaign (BATCH_FAULT_RUNS), and keeps its report (BATCH_FAULT_REPORT).
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { after, test } from "node:test";
import { missing } from "./support/brokers.mjs";
import { Deck, FAULTS, faultRun } from "./support/faults.mjs";

const RUNS = Number(process.env.BATCH_FAULT_RUNS ?? 6);
const FIRST = Number(process.env.BATCH_SEED ?? 1);

const KINDS = ["redis", "postgres", "database"];
/** Faults of a run: with two runs of a kind there is time for each fault, and for some that come when all is done. */
const COUNT = 5;

const runs = [];
after(() => {
  const file = process.env.BATCH_FAULT_REPORT;
  if (!file) return;
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version };
  writeFileSync(file, `${JSON.stringify({ date: new Date().toISOString(), machine, faults: FAULTS, runs })}\n`);
});

for (const [at, kind] of KINDS.entries()) {
  const why = missing(kind);
  test(`faults change no byte (${kind})`, why ? { skip: `${why} is not installed` } : {}, async (context) => {
    const met = new Set();
    let small = false;
    const deck = new Deck(FIRST + at);
    for (let i = 0; i < RUNS / KINDS.length; i++) {
      const found = await faultRun(FIRST + KINDS.length * i + at, kind, { deck, count: COUNT });
      runs.push(found);
      for (const name of found.faults) met.add(name);
      small = found.small;
      context.diagnostic(JSON.stringify(found));
      assert.ok(found.same, JSON.stringify(found));
    }
    // Not every machine lets a disk be mounted that may be full.
    const possible = FAULTS.filter((name) => name !== "disk" || small);
    if (RUNS >= 2 * KINDS.length) assert.deepEqual([...met].sort(), possible.sort());
  });
}
