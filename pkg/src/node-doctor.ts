import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { cores, freeMemory, runtimeName, spawnEngine } from "./platform/node.ts";
import { addressOf } from "./source/address.ts";

export type * from "./doctor/report.ts";

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
