/** How fast a model answers, measured on its answers: when a place in its queue may be free. */

import type { Finished, ModelStatus } from "../types/index.ts";

/** The share that the latest answer has in the mean. */
const SHARE = 0.1;
const [MIN_MS, MAX_MS] = [50, 60_000];

export class Pace {
  /** Milliseconds of a step, and tokens of an answer; null before the first one. */
  #stepMs: number | null = null;
  #tokens = 0;

  note({ timings }: Finished): void {
    const { predictedN, predictedMs } = timings;
    if (predictedN < 2) return;
    const stepMs = predictedMs / (predictedN - 1);
    this.#tokens = this.#stepMs === null ? predictedN : mean(this.#tokens, predictedN);
    this.#stepMs = this.#stepMs === null ? stepMs : mean(this.#stepMs, stepMs);
  }

  /** Milliseconds until a place is free: the places work through all that waits, an answer's time for each. */
  retryMs({ running, waiting }: Pick<ModelStatus, "running" | "waiting">): number {
    const answerMs = (this.#stepMs ?? 20) * Math.max(1, this.#tokens);
    return Math.min(MAX_MS, Math.max(MIN_MS, (answerMs * (1 + waiting)) / Math.max(1, running)));
  }
}

const mean = (before: number, now: number) => (1 - SHARE) * before + SHARE * now;
