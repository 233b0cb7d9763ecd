import { cpus } from "node:os";
import { deviceReport as report } from "./advise/probe.ts";
import { recommend as recommendWith } from "./advise/recommend.ts";
import type { DeviceReport, Recommendation, RecommendOptions } from "./advise/types.ts";
import type { Outside } from "./api/model.ts";
import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { checkOptions } from "./options/options.ts";
import { cores, freeMemory, physicalCores, runtimeName, spawnEngine, toPath } from "./platform/node.ts";
import { addressOf } from "./source/address.ts";
import type { ModelSource } from "./types/index.ts";

export type * from "./advise/types.ts";
export type * from "./doctor/report.ts";

const outside: Outside = { spawnEngine, base: null, toPath };

export const recommend = (source: ModelSource, options?: RecommendOptions): Promise<Recommendation> =>
  recommendWith(outside, source, options);

export async function deviceReport(options?: DoctorOptions): Promise<DeviceReport> {
  const { signal } = checkOptions("doctor", options, "deviceReport");
  const processor = cpus()[0]?.model.trim() || null;
  const machine = {
    runtime: runtimeName(),
    processor,
    cores: cores(),
    physicalCores: physicalCores(),
    freeMemory: freeMemory(),
  };
  return report(outside, machine, signal);
}

export async function doctor(url?: string | URL | null, options?: DoctorOptions): Promise<DoctorReport> {
  const patient = {
    runtime: runtimeName(),
    origin: null,
    cores: cores(),
    freeMemory: freeMemory(),
    spawnEngine,
    storage: async () => null,
  };
  return examine(patient, url === undefined || url === null ? null : addressOf(url, null, "url"), options);
}
