import { cpus } from "node:os";
import { deviceReport as report } from "./advise/probe.ts";
import { recommend as recommendWith } from "./advise/recommend.ts";
import type { DeviceReport, Recommendation, RecommendOptions } from "./advise/types.ts";
import type { Outside } from "./api/model.ts";
import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { checkOptions } from "./options/options.ts";
import { cores, findOnHub, freeMemory, runtimeName, spawnEngine, toPath, wholeCores } from "./platform/node.ts";
import { processorName, system } from "./platform/system.ts";
import { addressOf } from "./source/address.ts";
import type { ModelSource } from "./types/index.ts";

export type * from "./advise/types.ts";
export type * from "./doctor/report.ts";

const outside: Outside = { spawnEngine, base: null, toPath, onHub: findOnHub() };

export const recommend = (source: ModelSource, options?: RecommendOptions): Promise<Recommendation> =>
  recommendWith(outside, source, options);

export async function deviceReport(options?: Pick<DoctorOptions, "signal">): Promise<DeviceReport> {
  const { signal } = checkOptions("deviceReport", options);
  const machine = {
    runtime: runtimeName(),
    processor: processorName(cpus()[0]?.model),
    cores: cores(),
    physicalCores: system().physicalCores,
    freeMemory: freeMemory(),
  };
  return report(outside, machine, signal);
}

export async function doctor(source?: string | URL | null, options?: DoctorOptions): Promise<DoctorReport> {
  const patient = {
    runtime: runtimeName(),
    origin: null,
    cores: cores(),
    wholeCores: wholeCores(),
    freeMemory: freeMemory(),
    outside,
    system: process.platform === "linux" ? system() : null,
    storage: async () => null,
  };
  const given = source ?? null;
  const url = given !== null && /^https?:/i.test(String(given)) ? addressOf(given, null, "url") : null;
  return examine(patient, { url, model: url && !options?.load ? null : given }, options);
}
