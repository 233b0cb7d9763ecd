/** What Node, Deno and Bun report of themselves and of their machine. */

import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import path from "node:path";
import { runtimeName } from "../platform/node.ts";
import { processorName } from "../platform/system.ts";
import type { Environment } from "./bench.ts";
import type { Counters } from "./report.ts";

/** Linux's counters of energy. Intel's name stands for AMD's processors too. */
const POWERCAP = "/sys/class/powercap";
/** Milliseconds of a tick in /proc/stat. */
const TICK = 10;

export const environment: Environment = {
  machine: { runtime: runtimeName(), cpu: processorName(cpus()[0]?.model), cores: availableParallelism() },
  peakRssBytes: () => process.resourceUsage().maxRSS * 1024 || null,
  rssBytes: () => process.memoryUsage.rss(),
  counters,
};

function counters(): Counters {
  const { userCPUTime, systemCPUTime, minorPageFault, majorPageFault } = process.resourceUsage();
  return {
    atMs: performance.now(),
    cpuMs: (userCPUTime + systemCPUTime) / 1000,
    minorFaults: minorPageFault,
    majorFaults: majorPageFault,
    machine: machineTime(),
    energy: energy(),
  };
}

/** The first line of /proc/stat: `cpu`, then ticks as user, nice, system, idle, waiting, interrupts (2), stolen, and guests that are in `user`. */
export function machineTime(file = "/proc/stat"): Counters["machine"] {
  const [name, ...ticks] = (readText(file) ?? "").split("\n", 1)[0]!.split(/\s+/);
  if (name !== "cpu") return null;
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, stolen = 0] = ticks.map(Number);
  return { busyMs: TICK * (user + nice + system + irq + softirq), stolenMs: TICK * stolen };
}

/**
 * Every package, and memory where it is counted beside its package. Other parts are parts of these. Most systems let the superuser alone
 * read them, and most virtual machines have none.
 */
export function energy(folder = POWERCAP): Counters["energy"] {
  const names = listed(folder).filter((name) => /^intel-rapl:\d+(:\d+)?$/.test(name));
  const wanted = names.filter((name) => {
    const part = readText(path.join(folder, name, "name"))?.trim() ?? "";
    return name.split(":").length === 2 ? part.startsWith("package") : part === "dram";
  });
  const read = wanted.map((name) => {
    const [microjoules, range] = ["energy_uj", "max_energy_range_uj"].map((file) => {
      return Number(readText(path.join(folder, name, file)) ?? Number.NaN);
    }) as [number, number];
    return { microjoules, range };
  });
  const whole = read.length > 0 && read.every(({ microjoules, range }) => microjoules >= 0 && range > 0);
  return whole ? read : null;
}

function listed(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null;
  }
}
