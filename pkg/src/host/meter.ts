/** Progress of a download: reported at most every 50 ms, with the rate over about the last second. */

import type { Progress } from "../types/index.ts";

const INTERVAL_MS = 50;
const RATE_MS = 1000;

export class Meter {
  readonly #total: number;
  readonly #report: (progress: Progress) => void;
  #loaded = 0;
  #reported = 0;
  #late: ReturnType<typeof setTimeout> | undefined;
  /** Points of the last second; the rate is the slope between the first and the last. */
  #marks: { at: number; loaded: number }[] = [{ at: performance.now(), loaded: 0 }];

  constructor(total: number, report: (progress: Progress) => void) {
    this.#total = total;
    this.#report = report;
    this.#send("download");
  }

  /** Bytes that have just arrived. */
  add(bytes: number): void {
    this.#loaded += bytes;
    const soon = performance.now() - this.#reported < INTERVAL_MS && this.#loaded < this.#total;
    // The last bytes before a pause are reported, too.
    if (soon) this.#late ??= setTimeout(() => this.#mark(), INTERVAL_MS);
    else this.#mark();
  }

  /** Nothing more arrives. */
  stop(): void {
    clearTimeout(this.#late);
    this.#late = undefined;
  }

  #mark(): void {
    const now = performance.now();
    this.#marks.push({ at: now, loaded: this.#loaded });
    while (this.#marks.length > 2 && now - this.#marks[0]!.at > RATE_MS) this.#marks.shift();
    this.#send("download");
  }

  /** All bytes have arrived and what was to be done with them is done. */
  end(phase: Progress["phase"]): void {
    this.#send(phase);
  }

  get #rate(): number {
    const [first, last] = [this.#marks[0]!, this.#marks.at(-1)!];
    return last.at > first.at ? ((last.loaded - first.loaded) * 1000) / (last.at - first.at) : 0;
  }

  #send(phase: Progress["phase"]): void {
    this.stop();
    this.#reported = performance.now();
    this.#report({ phase, loaded: this.#loaded, total: this.#total, bytesPerSecond: this.#rate });
  }
}
