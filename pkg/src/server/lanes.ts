/** The parts of one request, a few at a time, so that no request fills the engine's queue. */

import { EngineError } from "../types/errors.ts";

/** As many as the engine computes together unless it was told otherwise. */
const LANES = 8;
/** Milliseconds before a part tries again to get a place. */
const AGAIN_MS = 20;

/** The queue has no place for a request. */
export const isQueueFull = (error: unknown): boolean => error instanceof EngineError && error.code === "QueueFull";

/**
 * Works on parts 0 to `count - 1`. Once one of them has a place in the queue, the others wait for places: only a request that gets no place
 * at all is refused. None has one where each lane's first part was refused at its first try: a try again says nothing, because another one
 * may begin before a busy engine has refused the last.
 */
export async function inLanes(count: number, work: (part: number) => Promise<void>): Promise<void> {
  const parts = Array(count).keys();
  const lanes = Math.min(LANES, count);
  let [refused, done, failed] = [0, 0, false];
  const lane = async () => {
    let tries = 0;
    for (const part of parts) {
      for (;;) {
        if (failed) return;
        tries++;
        try {
          await work(part);
          done++;
          break;
        } catch (error) {
          if (tries === 1) refused++;
          if (!isQueueFull(error) || (done === 0 && refused === lanes)) {
            failed = true;
            throw error;
          }
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}
