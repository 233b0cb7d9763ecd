import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { joulesBetween, processUse } from "../../src/bench/counters.ts";
import { energy, environment, machineTime } from "../../src/bench/environment.ts";
import type { Counters } from "../../src/bench/report.ts";

const none: Counters = { atMs: 0, cpuMs: 0, minorFaults: 0, majorFaults: 0, machine: null, energy: null };

test("what decoding uses is worked out from the counters of all runs", () => {
  const machine = (busyMs: number, stolenMs: number) => ({ busyMs, stolenMs });
  const first = {
    before: { ...none, atMs: 1000, cpuMs: 500, minorFaults: 90, machine: machine(7000, 10) },
    after: { ...none, atMs: 2000, cpuMs: 2300, minorFaults: 110, majorFaults: 2, machine: machine(8900, 60) },
    tokens: 30,
  };
  const second = {
    before: { ...none, atMs: 5000, machine: machine(9000, 60) },
    after: { ...none, atMs: 6000, cpuMs: 2000, machine: machine(11000, 60) },
    tokens: 10,
  };
  assert.deepEqual(processUse([first, second], 2), {
    tokens: 40,
    seconds: 2,
    minorFaultsPerToken: 0.5,
    majorFaultsPerToken: 0.05,
    cpuCores: 1.9,
    cpuShare: 0.95,
    otherCores: 0.05,
    stolenCores: 0.025,
    joulesPerToken: null,
  });
  assert.equal(processUse([], 2), null);
  const without = processUse([{ ...second, before: none }], 1)!;
  assert.deepEqual([without.otherCores, without.stolenCores], [null, null], "both must have been told");
});

test("energy counts on when its counter begins anew, and is unknown unless all is known", () => {
  const at = (...values: number[]) => values.map((microjoules) => ({ microjoules, range: 1000e6 }));
  assert.equal(joulesBetween(at(100e6, 5e6), at(250e6, 6e6)), 151);
  assert.equal(joulesBetween(at(990e6), at(20e6)), 30);
  for (const [before, after] of [
    [null, at(1)],
    [at(1), null],
    [at(1), at(1, 2)],
    [[], []],
  ] as const) {
    assert.equal(joulesBetween(before as Counters["energy"], after as Counters["energy"]), null);
  }
  const run = { before: { ...none, energy: at(0) }, after: { ...none, atMs: 1000, energy: at(40e6) }, tokens: 20 };
  assert.equal(processUse([run], 1)!.joulesPerToken, 2);
  assert.equal(processUse([run, { before: none, after: none, tokens: 1 }], 1)!.joulesPerToken, null);
});

/** A folder as Linux has it, of names with their parts' names and counters; null for one that may not be read. */
async function powercap(context: TestContext, parts: Record<string, [string, number | null]>): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  for (const [name, [part, microjoules]] of Object.entries(parts)) {
    await mkdir(path.join(folder, name));
    await writeFile(path.join(folder, name, "name"), `${part}\n`);
    await writeFile(path.join(folder, name, "max_energy_range_uj"), "262143328850\n");
    if (microjoules !== null) await writeFile(path.join(folder, name, "energy_uj"), `${microjoules}\n`);
  }
  return folder;
}

test("packages are counted, memory beside them, and no part of a package twice", async (context) => {
  const range = 262143328850;
  const found = await powercap(context, {
    "intel-rapl:0": ["package-0", 1000],
    "intel-rapl:0:0": ["core", 400],
    "intel-rapl:0:1": ["dram", 70],
    "intel-rapl:1": ["package-1", 2000],
    "intel-rapl:2": ["psys", 9000],
    "intel-rapl-mmio:0": ["package-0", 1000],
  });
  assert.deepEqual(
    energy(found)!.map(({ microjoules }) => microjoules),
    [1000, 70, 2000],
  );
  assert.equal(energy(found)![0]!.range, range);
  const secret = await powercap(context, { "intel-rapl:0": ["package-0", null], "intel-rapl:1": ["package-1", 5] });
  assert.equal(energy(secret), null, "a sum without one part would be wrong");
  assert.equal(energy(path.join(found, "absent")), null);
});

test("the machine's time is read where there is any", async (context) => {
  const folder = await powercap(context, {});
  const file = path.join(folder, "stat");
  await writeFile(file, "cpu  100 20 30 4000 50 6 7 8 90 0\ncpu0 1 2 3 4\n");
  assert.deepEqual(machineTime(file), { busyMs: 10 * (100 + 20 + 30 + 6 + 7), stolenMs: 80 });
  await writeFile(file, "intr 1 2\n");
  assert.equal(machineTime(file), null);
  assert.equal(machineTime(path.join(folder, "absent")), null);
});

test("this process's own counters rise with what it does", () => {
  const before = environment.counters!()!;
  const end = performance.now() + 100;
  const pages = Buffer.allocUnsafeSlow(64 << 20);
  for (let at = 0; at < pages.length; at += 4096) pages[at] = 1;
  while (performance.now() < end);
  const after = environment.counters!()!;
  assert.ok(after.atMs - before.atMs >= 99);
  assert.ok(after.cpuMs - before.cpuMs > 20, `${after.cpuMs - before.cpuMs} ms of a busy tenth of a second`);
  assert.ok(after.minorFaults > before.minorFaults);
  assert.equal(pages[4096], 1);
});
