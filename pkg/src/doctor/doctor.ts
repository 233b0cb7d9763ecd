/** Examines a runtime as `load` sees it: the same probes, the same choice of a build, the same worker. */
import { type Outside, UnstableEngine } from "../api/unstable.ts";
import { checkOptions } from "../options/options.ts";
import type { ModelSource } from "../types/index.ts";
import { probe } from "../wasm/features.ts";
import { type BuildChoice, pick } from "../wasm/pick.ts";
import { advise } from "./advice.ts";
import { examineModel } from "./model.ts";
import type { DoctorOptions, DoctorReport, SystemReport } from "./report.ts";
import { lookAt } from "./source.ts";

/** The runtime that is examined. The entry files provide it. */
export interface Patient {
  runtime: string;
  /** The page's origin; null in runtimes without pages. */
  origin: string | null;
  cores: number;
  freeMemory: number | null;
  /** Cores that a thread each may have; null where the runtime does not tell. */
  wholeCores: number | null;
  outside: Outside;
  system: SystemReport | null;
  storage(): Promise<DoctorReport["storage"]>;
}

/** What there is to examine besides the runtime. */
export interface Subject {
  url: URL | null;
  model: ModelSource | null;
}

export async function examine(
  patient: Patient,
  { url, model: source }: Subject,
  options?: DoctorOptions,
): Promise<DoctorReport> {
  const { load = {}, signal } = checkOptions("doctor", options);
  signal?.throwIfAborted();
  checkOptions("load", load, "doctor: load");
  const features = probe();
  const choice = tryPick(features, patient, load.threads);
  const simd = choice && mayCompile() ? (choice.flavour.endsWith("relaxed") ? "relaxed" : "simd128") : null;
  const [engineError, storage, found, model] = await Promise.all([
    simd && tryEngine(patient.outside, signal),
    patient.storage(),
    url && lookAt(url.href, patient.origin, signal),
    source === null ? null : examineModel(patient.outside, source, load, signal),
  ]);
  signal?.throwIfAborted();
  const report = {
    runtime: patient.runtime,
    isolated: (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated ?? null,
    simd,
    flavour: simd && choice ? choice.flavour : null,
    threads: choice?.threads ?? 0,
    cores: patient.cores,
    threadsReason: choice?.threadsReason ?? null,
    engineError,
    memory: { reservable: reservable(features.unshared === null), free: patient.freeMemory },
    storage,
    source: found,
    system: patient.system,
    model,
  } as const;
  return { ...report, advice: advise(report) };
}

function tryPick(
  features: ReturnType<typeof probe>,
  { cores, wholeCores }: Patient,
  threads: number | undefined,
): BuildChoice | null {
  try {
    return pick(features, cores, threads && !features.unshared ? { threads } : {}, wholeCores);
  } catch {
    return null;
  }
}

/** Compiles the shortest possible module: a content security policy forbids it as it forbids all others. */
function mayCompile(): boolean {
  try {
    return Boolean(new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)));
  } catch {
    return false;
  }
}

/** Tells why the engine's worker, its wasm or its threads do not start; null where a short measurement succeeds. */
async function tryEngine(outside: Outside, signal?: AbortSignal): Promise<string | null> {
  const engine = new UnstableEngine(outside);
  try {
    await engine.roofline({ settings: {}, bytes: 1 << 16, streams: [1], repeat: 1 }, signal);
    return null;
  } catch (error) {
    signal?.throwIfAborted();
    return (error as Error).message;
  } finally {
    await engine.close();
  }
}

/** Finds how much one memory can reserve. It is address space only, and released at once. */
function reservable(shared: boolean): number {
  for (let pages = 65536; pages > 0; pages >>= 1) {
    try {
      new WebAssembly.Memory({ initial: 0, maximum: pages, shared });
      return pages * 65536;
    } catch {
      // Try half as much.
    }
  }
  return 0;
}
