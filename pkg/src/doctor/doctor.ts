/** Examines a runtime as `load` sees it: the same probes, the same choice of a build, the same worker. */
import { type Outside, UnstableEngine } from "../api/unstable.ts";
import { checkOptions } from "../options/options.ts";
import { probe } from "../wasm/features.ts";
import { type Pick, pick } from "../wasm/pick.ts";
import { advise } from "./advice.ts";
import type { DoctorOptions, DoctorReport } from "./report.ts";
import { lookAt } from "./source.ts";

/** The runtime that is examined. The entry files provide it. */
export interface Patient {
  runtime: string;
  /** The page's origin; null in runtimes without pages. */
  origin: string | null;
  cores: number;
  freeMemory: number | null;
  spawnEngine: Outside["spawnEngine"];
  storage(): Promise<DoctorReport["storage"]>;
}

export async function examine(patient: Patient, url: URL | null, options?: DoctorOptions): Promise<DoctorReport> {
  const { signal } = checkOptions("doctor", options);
  signal?.throwIfAborted();
  const features = probe();
  const choice = tryPick(features, patient.cores);
  const simd = choice && mayCompile() ? (choice.flavour.endsWith("relaxed") ? "relaxed" : "simd128") : null;
  const [engineError, storage, source] = await Promise.all([
    simd && tryEngine(patient, signal),
    patient.storage(),
    url && lookAt(url.href, patient.origin, signal),
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
    source,
  } as const;
  return { ...report, advice: advise(report) };
}

function tryPick(features: ReturnType<typeof probe>, cores: number): Pick | null {
  try {
    return pick(features, cores);
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
async function tryEngine(patient: Patient, signal?: AbortSignal): Promise<string | null> {
  const engine = new UnstableEngine(patient);
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
