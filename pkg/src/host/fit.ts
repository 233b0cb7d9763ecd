/** Whether a model fits, and the nearest settings with which it does. */

import type { EngineSettings } from "../rpc/protocol.ts";
import type { CanRun, MemoryNeeds } from "../types/index.ts";

/** Beside weights, cache and scratch: code, stacks, buffers of a load. */
const SLACK_BYTES = 128 << 20;
/** wasm32 has no more. */
const MOST_BYTES = 2 ** 32;

/** Memory of an instance that a model of `modelBytes` runs in. */
export const instanceBytes = (modelBytes: number, headerBytes: number): number =>
  modelBytes + SLACK_BYTES + 2 * headerBytes;

/** What an instance may leave to a model. `free` is what the runtime says it has; null where that does not count. */
export function room(
  headerBytes: number,
  free: number | null,
  adapterBytes = 0,
): { available: number; reason: string } {
  const others = instanceBytes(adapterBytes, headerBytes);
  const scarce = free !== null && free < MOST_BYTES;
  const available = Math.max(0, (scarce ? free : MOST_BYTES) - others);
  const owner = scarce ? "this machine has" : "WebAssembly has at most";
  return { available, reason: `${owner} ${available} bytes for it` };
}

/** A conversation shorter than this is none. */
const LEAST_CONTEXT = 256;
const STEP = 32;

/** `plan` tells the memory that a model takes with some settings; `longest` is the context it was trained for. */
export function fit(
  plan: (settings: EngineSettings) => MemoryNeeds,
  settings: EngineSettings,
  longest: number,
  { available, reason }: ReturnType<typeof room>,
): CanRun {
  const fits = (changes: EngineSettings) => plan({ ...settings, ...changes }).total <= available;
  const needed = plan(settings);
  if (needed.total <= available) return { ok: true, needed, available };
  const words = `the model needs ${needed.total} bytes, ${reason}`;
  const no = { ok: false, needed, available };
  if (fits({ kv: "f16" })) return { ...no, reason: words, suggestion: { kv: "f16" } };

  // The longest context that fits, in steps: `low` does, `high` does not.
  const shortened = (context: number): EngineSettings => ({ kv: "f16", contextLength: context });
  const most = settings.contextLength ?? longest;
  let low = Math.min(LEAST_CONTEXT, most);
  if (!fits(shortened(low))) {
    return { ...no, reason: `${words}: too few even for a context of ${low} positions` };
  }
  for (let high = most; high - low > STEP; ) {
    const middle = Math.floor((low + high) / 2 / STEP) * STEP;
    if (middle <= low || !fits(shortened(middle))) high = Math.max(middle, low);
    else low = middle;
  }
  const asIs = fits({ contextLength: low });
  return { ...no, reason: words, suggestion: asIs ? { contextLength: low } : shortened(low) };
}
