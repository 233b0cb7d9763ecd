/** What the engine is doing, and the warm-up of the runtime's compilers. */

import type { Handler } from "../call.ts";
import type { EngineWork } from "../events.ts";
import { once } from "../request.ts";

export const status: Handler<"status"> = ({ model: { engine, memory } }) => {
  const counts = [...engine.status()] as [number, number, number, number, number, number, number, number];
  const [running, waiting, paused, kvCacheTokens, usedTokens, evictableTokens, recurrentStates, usedStates] = counts;
  return {
    running,
    waiting,
    paused,
    kvCacheTokens,
    usedTokens,
    evictableTokens,
    recurrentStates,
    usedStates,
    memoryBytes: memory.buffer.byteLength,
  };
};

/** Compilers in the background need about so long for all the functions that a token needs. */
const WARMUP_MS = 300;
const MAX_ROUNDS = 64;

/**
 * Runs a prompt and some steps, long enough for the kernels of prompts and of single tokens. A small model does that in a few
 * milliseconds, so the rounds repeat until the runtime's compilers have had time for its functions too.
 */
export const warmup: Handler<"warmup"> = async (state, _, context) => {
  const { vocab, contextLength } = state.model.info;
  const ids = Array.from({ length: Math.min(32, Math.ceil(contextLength / 2)) }, (_, i) => i % vocab);
  const work: EngineWork = { type: "generate", maxTokens: 8, end: [], full: 0 };
  const until = performance.now() + WARMUP_MS;
  for (let round = 0; round === 0 || (round < MAX_ROUNDS && performance.now() < until); round++)
    await once(state, ids, work, context, { event() {}, result: () => null });
  return null;
};
