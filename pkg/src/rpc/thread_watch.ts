/** Notices a thread of the engine's that was killed while a step waits for it: the engine's own worker sees nothing then. */

/** Milliseconds in which the engine may still say that it ended the thread itself, or why. */
const GRACE = 250;

export class ThreadWatch {
  readonly #lives = new Set<MessagePort>();
  readonly #onDeath: () => void;

  constructor(onDeath: () => void) {
    this.#onDeath = onDeath;
  }

  /** Not all browsers have the event (Chrome has since 122, Node has): elsewhere the engine's silence is noticed. */
  add(life: MessagePort): void {
    this.#lives.add(life);
    life.addEventListener("close", () => {
      if (!this.#lives.has(life)) return;
      setTimeout(() => this.#lives.has(life) && this.#onDeath(), GRACE);
    });
    // It keeps no process alive.
    (life as unknown as { unref?(): void }).unref?.();
  }

  clear(): void {
    this.#lives.clear();
  }
}
