/** Examines what a load of a model would plan, from the model's header. */
import { canRun, inspect, type Outside } from "../api/model.ts";
import type { CanRun, LoadOptions, ModelSource } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";
import type { ModelReport } from "./report.ts";

/** As in the option table. */
const DEFAULT_CONTEXT = 4096;

export async function examineModel(
  outside: Outside,
  source: ModelSource,
  load: LoadOptions,
  signal: AbortSignal | undefined,
): Promise<ModelReport> {
  const options = { ...load, signal };
  // Whether threads can be had is the runtime's matter, and said with it.
  const { threads: askedThreads = null, ...planned } = options;
  const [about, fits, halved] = await Promise.all([
    inspect(outside, source, { signal }),
    canRun(outside, source, planned),
    canRun(outside, source, { ...planned, kvCacheType: "f16" }),
  ]);
  const contextLength = load.contextLength ?? Math.min(about.config.contextLength, DEFAULT_CONTEXT);
  const { needed } = fits;
  return { error: why(fits), askedThreads, contextLength, memory: needed, f16KvBytes: halved.needed.kv };
}

const why = ({ ok, reason }: CanRun) => (ok ? null : (reason ?? "it does not fit in memory"));
