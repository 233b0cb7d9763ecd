/** What Linux tells of a process's processors and limits, in files. Elsewhere, and where a file is missing, nothing is known. */

import { readFileSync } from "node:fs";

/** The text of a file; null where it cannot be read. */
export type ReadText = (path: string) => string | null;

export const readText: ReadText = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
};

/**
 * A processor's name, with its generation where Linux tells it: servers of several generations call themselves alike. Null where nothing
 * tells one.
 */
export function processorName(name: string | undefined, read: ReadText = readText): string | null {
  const model = name?.trim();
  if (!model) return null;
  const [first = ""] = (read("/proc/cpuinfo") ?? "").split("\n\n");
  const [family, number] = ["cpu family", "model"].map(
    (key) => new RegExp(`^${key}\\s*: (\\d+)$`, "m").exec(first)?.[1],
  );
  return family && number ? `${model} (family ${family}, model ${number})` : model;
}

export interface System {
  /** Processors that this process may run on, each hyper-thread one; null where that is not told. */
  processors: number | null;
  /** Of these, cores without their hyper-threads. */
  physicalCores: number | null;
  /** How the clocks of these are governed, each name once: `performance`, `powersave` …; empty where that is not told. */
  governors: string[];
  /** Cores whose time the process's control groups let it use: 1.5 is one and a half; null where they set no limit. */
  cpuLimit: number | null;
  /** Bytes that they let it use; null where they set no limit. */
  memoryLimit: number | null;
}

const CPUS = "/sys/devices/system/cpu";
const CGROUPS = "/sys/fs/cgroup";
/** A limit of version 1 that is none: the largest multiple of a page. */
const NO_LIMIT = 2 ** 62;

export function system(read: ReadText = readText): System {
  const allowed = processorList(/^Cpus_allowed_list:\s*(\S+)$/m.exec(read("/proc/self/status") ?? "")?.[1]);
  const governors = (allowed ?? []).flatMap((cpu) => line(read, `${CPUS}/cpu${cpu}/cpufreq/scaling_governor`) ?? []);
  return {
    processors: allowed?.length ?? null,
    physicalCores: physicalCores(read, allowed),
    governors: [...new Set(governors)],
    ...limits(read),
  };
}

/** Cores among these processors, or among all: hyper-threads of a core have one list of siblings. */
function physicalCores(read: ReadText, allowed: readonly number[] | null): number | null {
  const siblings = (allowed ?? []).map((cpu) => line(read, `${CPUS}/cpu${cpu}/topology/thread_siblings_list`));
  if (siblings.length > 0 && siblings.every((list) => list !== null)) return new Set(siblings).size;
  const found = (read("/proc/cpuinfo") ?? "").split("\n\n").flatMap((block) => {
    const field = (name: string) => new RegExp(`^${name}\\s*: (\\d+)$`, "m").exec(block)?.[1];
    const [socket, core, processor] = [field("physical id"), field("core id"), Number(field("processor"))];
    const counts = core !== undefined && (allowed === null || allowed.includes(processor));
    return counts ? [`${socket} ${core}`] : [];
  });
  return found.length > 0 ? new Set(found).size : null;
}

/** The tightest limits of the process's control groups: its own and those that it lies in. */
function limits(read: ReadText): Pick<System, "cpuLimit" | "memoryLimit"> {
  const cpu: number[] = [];
  const memory: number[] = [];
  for (const row of (read("/proc/self/cgroup") ?? "").split("\n")) {
    const [, names, own] = /^\d+:([^:]*):(.*)$/.exec(row) ?? [];
    if (names === undefined || own === undefined) continue;
    for (const folder of upwards(own)) {
      if (names === "") {
        const [quota, period] = (line(read, `${CGROUPS}${folder}/cpu.max`) ?? "").split(" ").map(Number);
        if (quota! > 0 && period! > 0) cpu.push(quota! / period!);
        memory.push(number(read, `${CGROUPS}${folder}/memory.max`));
      }
      if (names.split(",").includes("cpu")) {
        const [quota, period] = ["quota", "period"].map((part) =>
          number(read, `${CGROUPS}/${names}${folder}/cpu.cfs_${part}_us`),
        );
        if (quota! > 0 && period! > 0) cpu.push(quota! / period!);
      }
      if (names === "memory") memory.push(number(read, `${CGROUPS}/memory${folder}/memory.limit_in_bytes`));
    }
  }
  const set = memory.filter((bytes) => bytes < NO_LIMIT);
  return { cpuLimit: least(cpu), memoryLimit: least(set) };
}

/** A group's folder and those above it: `/a/b`, `/a` and the root, which is empty. */
function upwards(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "");
  return Array.from({ length: parts.length + 1 }, (_, above) =>
    parts
      .slice(0, parts.length - above)
      .map((part) => `/${part}`)
      .join(""),
  );
}

const least = (values: readonly number[]) => (values.length > 0 ? Math.min(...values) : null);
const line = (read: ReadText, path: string) => read(path)?.trim() || null;
/** NaN for what is no number, as `max`. */
const number = (read: ReadText, path: string) => Number(line(read, path) ?? Number.NaN);

/** `0-3,8` as numbers; null where nothing is given. */
function processorList(text: string | undefined): number[] | null {
  if (text === undefined) return null;
  return text.split(",").flatMap((range) => {
    const [from, to = from] = range.split("-").map(Number);
    return Array.from({ length: to! - from! + 1 }, (_, i) => from! + i);
  });
}
