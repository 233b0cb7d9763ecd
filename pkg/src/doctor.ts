import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { cores, freeMemory, pageAddress, runtimeName, spawnEngine } from "./platform/browser.ts";
import { addressOf } from "./source/address.ts";

export type * from "./doctor/report.ts";

/**
 * Tells what this runtime can do with a model, what is in the way, and what to do about it.
 *
 * @param url a model's address, to be looked at too: whether it answers, with ranges, to this page
 */
export async function doctor(url?: string | URL | null, options?: DoctorOptions): Promise<DoctorReport> {
  const page = pageAddress();
  const patient = {
    runtime: runtimeName(),
    origin: new URL(page).origin,
    cores: cores(),
    freeMemory: freeMemory(),
    spawnEngine,
    storage,
  };
  return examine(patient, url === undefined || url === null ? null : addressOf(url, page, "url"), options);
}

async function storage(): Promise<DoctorReport["storage"]> {
  try {
    const [{ quota = 0, usage = 0 }, persisted] = await Promise.all([
      navigator.storage.estimate(),
      navigator.storage.persisted(),
    ]);
    return { quota, usage, persisted };
  } catch {
    return null;
  }
}
