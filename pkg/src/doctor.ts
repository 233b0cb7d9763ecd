import { deviceReport as report } from "./advise/probe.ts";
import { recommend as recommendWith } from "./advise/recommend.ts";
import type { DeviceReport, Recommendation, RecommendOptions } from "./advise/types.ts";
import type { Outside } from "./api/model.ts";
import { examine } from "./doctor/doctor.ts";
import type { DoctorOptions, DoctorReport } from "./doctor/report.ts";
import { checkOptions } from "./options/options.ts";
import { cores, findOnHub, freeMemory, pageAddress, runtimeName, spawnEngine } from "./platform/browser.ts";
import { addressOf } from "./source/address.ts";
import type { ModelSource } from "./types/index.ts";
import type { URL as Address } from "./types/web.ts";

export type * from "./advise/types.ts";
export type * from "./doctor/report.ts";

const outside: Outside = { spawnEngine, base: pageAddress(), onHub: findOnHub() };

/**
 * Recommends settings for a load, from what the model takes and from a probe of one to four seconds on this machine, for which it is loaded;
 * or from another machine's report.
 *
 * @param source as of `load`
 * @returns options of `load`, what they are predicted to give, and why; where nothing fits, what is missing
 * @throws {EngineError} as `load`
 * @example
 * ```ts
 * import { load } from "ternlight";
 * import demo from "ternlight/demo";
 * import { recommend } from "ternlight/doctor";
 *
 * const { fits, missing, settings, predicted } = await recommend(demo, { users: 4, promptTokens: 32, answerTokens: 16 });
 * if (!fits) console.log(missing);
 * const model = await load(demo, settings);
 * console.log(model.info.maxSequences, predicted.tokensPerSecond, predicted.answerMs.p95);
 * await model.close();
 * ```
 */
export const recommend = (source: ModelSource, options?: RecommendOptions): Promise<Recommendation> =>
  recommendWith(outside, source, options);

/** Measures what this machine reads and multiplies, for `recommend` on another one. */
export async function deviceReport(options?: Pick<DoctorOptions, "signal">): Promise<DeviceReport> {
  const { signal } = checkOptions("deviceReport", options);
  const machine = {
    runtime: runtimeName(),
    processor: null,
    cores: cores(),
    physicalCores: null,
    freeMemory: freeMemory(),
  };
  return report(outside, machine, signal);
}

/**
 * Examines what this runtime can do with a model, what is in the way, and what to do about it.
 *
 * @param url the address of a model, to be examined too: whether it answers, with ranges, to this page. In Node also a file or a folder:
 *   what a load of it would plan, and whether the machine and its limits suit that
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
    wholeCores: null,
    freeMemory: freeMemory(),
    outside,
    system: null,
    storage,
  };
  const address = url === undefined || url === null ? null : addressOf(url, page, "url");
  return examine(patient, { url: address, model: options?.load ? address : null }, options);
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
