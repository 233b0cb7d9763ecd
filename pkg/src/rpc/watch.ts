/** Seconds. The longest that an engine of ours was seen to be silent is two, building a tokenizer of 260,000 words. */
const PATIENCE = 30;

/**
 * Notices a worker that hangs. What comes from strangers is capped where it can be (limits.ts), but a tokenizer's pattern that
 * backtracks cannot be stopped from within. Turns of the owner's own clock are counted, so a machine that slept or a page that
 * was busy accuses nobody.
 */
export class Watch {
  readonly #ask: () => void;
  readonly #onSilence: (seconds: number) => void;
  readonly #patience: number;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Of questions without a word since; -1 before the first word, while the worker's script may still be on its way. */
  #silent = -1;

  constructor(ask: () => void, onSilence: (seconds: number) => void, patience = PATIENCE) {
    this.#ask = ask;
    this.#onSilence = onSilence;
    this.#patience = patience;
  }

  /** On while an answer is awaited. */
  set on(on: boolean) {
    if (on === (this.#timer !== undefined) || this.#patience === Number.POSITIVE_INFINITY) return;
    clearInterval(this.#timer);
    this.#timer = on ? setInterval(() => this.#look(), 1000) : undefined;
    if (this.#silent > 0) this.#silent = 0;
  }

  heard(): void {
    this.#silent = 0;
  }

  #look(): void {
    if (this.#silent < 0) return;
    if (this.#silent >= this.#patience) this.#onSilence(this.#silent);
    else {
      this.#silent++;
      this.#ask();
    }
  }
}
