/** Whether a model fits in memory, and the nearest settings with which it does. */

import type { EngineSettings } from "../rpc/protocol.ts";
import type { CanRun, MemoryNeeds } from "../types/index.ts";

export type Verdict = Omit<CanRun, "heads">;

/** What an instance takes beside weights, KV cache and scratch: code, stacks, buffers of a load. */
const SLACK_BYTES = 128 << 20;
/** The address space of wasm32. */
const MAX_BYTES = 2 ** 32;

/** Memory of an instance in which a model of `modelBytes` runs. */
export const instanceBytes = (modelBytes: number, headerBytes: number): number =>
  modelBytes + SLACK_BYTES + 2 * headerBytes;

export interface Room {
  /** Bytes that a model may take. */
  available: number;
  /** What limits them, in words. */
  reason: string;
}

/** What an instance leaves for a model. `free` is what the runtime says it has; null where that does not count. */
export function room(headerBytes: number, free: number | null, maxAdapterBytes = 0): Room {
  const others = instanceBytes(maxAdapterBytes, headerBytes);
  const scarce = free !== null && free < MAX_BYTES;
  const available = Math.max(0, (scarce ? free : MAX_BYTES) - others);
  const owner = scarce ? "this machine has" : "WebAssembly has at most";
  return { available, reason: `${owner} ${available} bytes for it` };
}

/** The shortest context that is suggested: a conversation needs more than a few lines. */
const MIN_CONTEXT = 256;
/** Contexts are suggested in steps of the KV cache's blocks. */
const CONTEXT_STEP = 32;

export interface FitQuestion {
  settings: EngineSettings;
  /** What the model takes with them. */
  needed: MemoryNeeds;
  room: Room;
  /** The context that the model was trained for. */
  trainedContext(): number;
  /** What the model takes with other settings. */
  needs(settings: EngineSettings): MemoryNeeds;
}

export function fit({ settings, needed, room, trainedContext, needs }: FitQuestion): Verdict {
  const { available, reason } = room;
  if (needed.total <= available) return { ok: true, needed, available };
  const fits = (changes: EngineSettings) => needs({ ...settings, ...changes }).total <= available;
  const words = `the model needs ${needed.total} bytes, ${reason}`;
  const no = { ok: false, needed, available };
  if (fits({ kvCacheType: "f16" })) return { ...no, reason: words, suggestion: { kvCacheType: "f16" } };
  // Of a hybrid, fewer conversations before shorter ones.
  const fewest: { recurrentStates?: number } = needed.states > 0 ? { recurrentStates: 1 } : {};
  const narrow = { kvCacheType: "f16", ...fewest } as const;
  if (fits(narrow)) return { ...no, reason: words, suggestion: narrow };

  // The longest context that fits, by bisection: `low` fits, `high` does not.
  const shortened = (context: number) => ({ ...narrow, contextLength: context });
  const most = settings.contextLength ?? trainedContext();
  let low = Math.min(MIN_CONTEXT, most);
  if (!fits(shortened(low))) {
    return { ...no, reason: `${words}: too few even for a context of ${low} positions` };
  }
  for (let high = most; high - low > CONTEXT_STEP; ) {
    const middle = Math.floor((low + high) / 2 / CONTEXT_STEP) * CONTEXT_STEP;
    if (middle <= low || !fits(shortened(middle))) high = Math.max(middle, low);
    else low = middle;
  }
  const asIs = fits({ contextLength: low });
  return { ...no, reason: words, suggestion: asIs ? { contextLength: low } : shortened(low) };
}
