/** The parts of one request, a few at a time, so that no request fills the engine's queue. */

import { EngineError } from "../types/errors.ts";

/** As many as the engine computes together unless it was told otherwise. */
const LANES = 8;
/** Milliseconds before a part tries again to get a place. */
const AGAIN_MS = 20;

/**
 * Works on parts 0 to `count - 1`. Once one of them has begun, the others wait for a place in the queue: only a request that gets no
 * place at all is refused.
 */
export async function inLanes(count: number, work: (part: number, begun: () => void) => Promise<void>): Promise<void> {
  const parts = Array(count).keys();
  let any = false;
  let failed = false;
  const begun = () => {
    any = true;
  };
  const lane = async () => {
    for (const part of parts) {
      for (;;) {
        if (failed) return;
        try {
          await work(part, begun);
          break;
        } catch (error) {
          const full = error instanceof EngineError && error.code === "QueueFull";
          if (!any || !full) {
            failed = true;
            throw error;
          }
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        }
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(LANES, count) }, lane));
}
