/** Notices a thread of the engine's that was killed while a step waits for it: the engine's own worker sees nothing then. */

/** Milliseconds in which the engine may still say that it ended the thread itself, or why. */
const GRACE = 250;

export class ThreadWatch {
  /** Ports that close, and names of locks that come free, when a thread has ended. */
  readonly #lives = new Set<MessagePort | string>();
  readonly #onDeath: () => void;
  /** Of requests for locks, which would be kept for good where none is freed. */
  #over = new AbortController();

  constructor(onDeath: () => void) {
    this.#onDeath = onDeath;
  }

  add(life: MessagePort | string): void {
    this.#lives.add(life);
    const ended = () => {
      if (!this.#lives.has(life)) return;
      setTimeout(() => this.#lives.has(life) && this.#onDeath(), GRACE);
    };
    if (typeof life === "string") {
      navigator.locks?.request(life, { signal: this.#over.signal }, ended).catch(() => {});
      return;
    }
    life.addEventListener("close", ended);
    // It keeps no process alive.
    (life as unknown as { unref?(): void }).unref?.();
  }

  clear(): void {
    this.#lives.clear();
    this.#over.abort();
    this.#over = new AbortController();
  }
}
