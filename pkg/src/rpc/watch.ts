/** Seconds. The longest silence that was seen of an engine at work is two, while it built a tokenizer of 260,000 tokens. */
const HANG_SECONDS = 30;

/**
 * Detects a worker that hangs. Work on untrusted data is capped where it can be (limits.ts), but a tokenizer's pattern that backtracks
 * cannot be stopped from inside the worker. Ticks of the owner's timer are counted instead of time, so that a machine that slept and a
 * page that was busy count as no silence of the worker.
 */
export class Watch {
  readonly #ask: () => void;
  readonly #onSilence: (seconds: number) => void;
  readonly #hangSeconds: number;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Pings since the last message; -1 before the first message, while the worker's script may still be loading. */
  #silent = -1;

  constructor(ask: () => void, onSilence: (seconds: number) => void, hangSeconds = HANG_SECONDS) {
    this.#ask = ask;
    this.#onSilence = onSilence;
    this.#hangSeconds = hangSeconds;
  }

  /** On while an answer is awaited. */
  set on(on: boolean) {
    if (on === (this.#timer !== undefined) || this.#hangSeconds === Number.POSITIVE_INFINITY) return;
    clearInterval(this.#timer);
    this.#timer = on ? setInterval(() => this.#look(), 1000) : undefined;
    if (this.#silent > 0) this.#silent = 0;
  }

  heard(): void {
    this.#silent = 0;
  }

  #look(): void {
    if (this.#silent < 0) return;
    if (this.#silent >= this.#hangSeconds) this.#onSilence(this.#silent);
    else {
      this.#silent++;
      this.#ask();
    }
  }
}
