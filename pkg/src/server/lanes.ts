/** The parts of one request, a few at a time, so that no request fills the engine's queue. */

import { EngineError } from "../types/errors.ts";

/** As many as the engine computes together unless it was told otherwise. */
const LANES = 8;
/** Milliseconds before a part tries again to get a place. */
const AGAIN_MS = 20;

/** The queue has no place for a request. */
export const isQueueFull = (error: unknown): boolean => error instanceof EngineError && error.code === "QueueFull";

/**
 * Works on parts 0 to `count - 1`. While one of them has a place in the queue, or has had one, the others wait for places: only a request
 * that gets no place at all is refused. A part that is under way counts as one with a place until it is refused itself.
 */
export async function inLanes(count: number, work: (part: number) => Promise<void>): Promise<void> {
  const parts = Array(count).keys();
  let [working, done, failed] = [0, 0, false];
  const lane = async () => {
    for (const part of parts) {
      for (;;) {
        if (failed) return;
        working++;
        try {
          await work(part);
          done++;
          break;
        } catch (error) {
          if (!isQueueFull(error) || working + done === 1) {
            failed = true;
            throw error;
          }
        } finally {
          working--;
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(LANES, count) }, lane));
}
