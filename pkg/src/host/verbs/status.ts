/** What the engine is doing, and the warm-up of the runtime's compilers. */

import type { Handler } from "../call.ts";
import { once } from "../request.ts";
import { MAX_ROUNDS, WARMUP_MS, warmupRound } from "../warmup.ts";

export const status: Handler<"status"> = ({ model: { engine, memory, crowding } }) => {
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
    threads: crowding.active,
  };
};

export const warmup: Handler<"warmup"> = async (state, _, context) => {
  const until = performance.now() + WARMUP_MS;
  for (let round = 0; round === 0 || (round < MAX_ROUNDS && performance.now() < until); round++) {
    const { ids, work } = warmupRound(state.model.info);
    await once(state, ids, work, context, { event() {}, result: () => null });
  }
  return null;
};
