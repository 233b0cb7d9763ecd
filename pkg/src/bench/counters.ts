/** What the system's counters say of a measured run. */

import type { Counters, ProcessUse } from "./report.ts";
import { sum } from "./stats.ts";

/** A run's counters, before and after, and how many tokens lie between them. */
export interface Counted {
  before: Counters;
  after: Counters;
  tokens: number;
}

/** All runs together; null where there is none. */
export function processUse(runs: readonly Counted[], threads: number): ProcessUse | null {
  const tokens = sum(runs.map(({ tokens }) => tokens));
  if (tokens === 0) return null;
  const rise = (value: (counters: Counters) => number) =>
    sum(runs.map(({ before, after }) => value(after) - value(before)));
  const ms = rise(({ atMs }) => atMs);
  const cpuMs = rise(({ cpuMs }) => cpuMs);
  const machine = runs.every(({ before, after }) => before.machine && after.machine);
  const busyMs = machine ? rise(({ machine }) => machine!.busyMs) : 0;
  const joules = runs.map(({ before, after }) => joulesBetween(before.energy, after.energy));
  return {
    tokens,
    seconds: ms / 1000,
    minorFaultsPerToken: rise(({ minorFaults }) => minorFaults) / tokens,
    majorFaultsPerToken: rise(({ majorFaults }) => majorFaults) / tokens,
    cpuCores: cpuMs / ms,
    cpuShare: cpuMs / ms / threads,
    // The machine's clock ticks are coarser than those of the process.
    otherCores: machine ? Math.max(0, (busyMs - cpuMs) / ms) : null,
    stolenCores: machine ? rise(({ machine }) => machine!.stolenMs) / ms : null,
    joulesPerToken: joules.every((one) => one !== null) ? sum(joules as number[]) / tokens : null,
  };
}

/** @returns null unless both have the same counters */
export function joulesBetween(before: Counters["energy"], after: Counters["energy"]): number | null {
  if (!before || before.length === 0 || before.length !== after?.length) return null;
  const rises = after.map(({ microjoules, range }, i) => {
    const rise = microjoules - before[i]!.microjoules;
    return rise < 0 ? rise + range : rise;
  });
  return sum(rises) / 1e6;
}
