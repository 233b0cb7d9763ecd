import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { cores, freeMemory, pageAddress, runtimeName, spawnEngine } from "./platform/browser.ts";
import { addressOf } from "./source/address.ts";
import type { URL as Address } from "./types/web.ts";

export type * from "./doctor/report.ts";

/**
 * Examines what this runtime can do with a model, what is in the way, and what to do about it.
 *
 * @param url the address of a model, to be examined too: whether it answers, with ranges, to this page
 * @returns a report; what is wrong stands in its `advice`
 * @throws {EngineError} `InvalidArgument` for an address or an option that is wrong; the signal's reason after an abort
 * @example
 * ```ts
 * import { doctor } from "ternlight/doctor";
 *
 * const { runtime, flavour, threads, advice } = await doctor();
 * console.log(runtime, flavour, threads);
 * for (const { level, text } of advice) console.log(`${level}: ${text}`);
 * ```
 */
export async function doctor(url?: string | Address | null, options?: DoctorOptions): Promise<DoctorReport> {
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
