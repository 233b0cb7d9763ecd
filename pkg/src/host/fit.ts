/** Whether a model fits in memory, and the nearest settings with which it does. */

import type { EngineSettings } from "../rpc/protocol.ts";
import type { CanRun, KvCacheType, MemoryNeeds } from "../types/index.ts";

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

/**
 * What an instance leaves for a model, of which it may have `most` bytes. `free` is what the runtime says it has; null where that does not
 * count.
 */
export function room(headerBytes: number, free: number | null, maxAdapterBytes = 0, most = MAX_BYTES): Room {
  const others = instanceBytes(maxAdapterBytes, headerBytes);
  const scarce = free !== null && free < MAX_BYTES;
  const available = Math.min(most, Math.max(0, (scarce ? free : MAX_BYTES) - others));
  const owner = scarce ? "this machine has" : "WebAssembly has at most";
  return { available, reason: `${owner} ${available} bytes for it` };
}

/** The shortest context that is suggested: a conversation needs more than a few lines. */
const MIN_CONTEXT = 256;
/** Contexts are suggested in steps of the KV cache's blocks. */
const CONTEXT_STEP = 32;
/** Chunks of prompts that are suggested: fewer than 32 tokens lose the kernels for many. */
const CHUNKS = [128, 64, 32];
/** Cache types that are suggested where the shortest context does not fit otherwise. */
const COARSE = ["q8", "q4"] as const;

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

/**
 * What is given up first is what costs least: half of the cache's bits; on a hybrid, states that are kept; further conversations in the
 * cache; the length of a chunk. Where the context does not fit even so, it is shortened instead of the last two; at the shortest, they
 * go as well, and at last further bits of the cache. Nothing gets finer or larger than it was asked for.
 */
export function fit({ settings, needed, room, trainedContext, needs }: FitQuestion): Verdict {
  const { available, reason } = room;
  if (needed.total <= available) return { ok: true, needed, available };
  const fits = (changes: EngineSettings) => needs({ ...settings, ...changes }).total <= available;
  const words = `the model needs ${needed.total} bytes, ${reason}`;
  const no = { ok: false, needed, available };
  const fewest: { recurrentStates?: number } = needed.states > 0 ? { recurrentStates: 1 } : {};
  const coarser = (kvCacheType: KvCacheType) => needs({ ...settings, kvCacheType }).kv < needed.kv;
  const half: EngineSettings = coarser("f16") ? { kvCacheType: "f16" } : {};
  const narrow = { ...half, ...fewest };
  const most = settings.contextLength ?? trainedContext();
  const near = [half, narrow, ...smaller(narrow, settings, most)].find(fits);
  if (near) return { ...no, reason: words, suggestion: near };

  // The longest context that fits, by bisection: `low` fits, `high` does not.
  const shortened = (context: number) => ({ ...narrow, contextLength: context });
  let low = Math.min(MIN_CONTEXT, most);
  if (!fits(shortened(low))) {
    const shorter = smaller(shortened(low), settings, low);
    const last = COARSE.filter(coarser).map((kvCacheType) => ({ ...shorter.at(-1)!, kvCacheType }));
    const suggestion = [...shorter, ...last].find(fits);
    if (suggestion) return { ...no, reason: words, suggestion };
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

/** The same with a cache for one conversation, and with shorter and shorter chunks beside that. */
function smaller<T extends EngineSettings>(base: T, { kvCacheTokens, prefillChunk }: EngineSettings, context: number) {
  const one = (kvCacheTokens ?? Infinity) <= context ? base : { ...base, kvCacheTokens: context };
  const shorter = CHUNKS.filter((chunk) => chunk < (prefillChunk ?? Infinity));
  return [one, ...shorter.map((chunk) => ({ ...one, prefillChunk: chunk }))];
}
