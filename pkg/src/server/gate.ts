/** Lets many work at once, or one alone. An abort ends the wait for a turn. */

import { unlessAborted } from "../integration/signals.ts";

export class Gate {
  #active = 0;
  /** Those who want to be alone, in turn: while one waits, nobody else begins. */
  #alone = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: (() => void)[] = [];

  async shared<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    while (this.#alone > 0) await unlessAborted(this.#changed(), signal);
    this.#active++;
    try {
      return await work();
    } finally {
      this.#active--;
      this.#wake();
    }
  }

  async alone<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const before = this.#turn;
    let leave = () => {};
    const own = new Promise<void>((resolve) => {
      leave = resolve;
    });
    // Where this one leaves early, the next one still waits for those before it.
    this.#turn = Promise.all([before, own]);
    this.#alone++;
    try {
      await unlessAborted(before, signal);
      while (this.#active > 0) await unlessAborted(this.#changed(), signal);
      return await work();
    } finally {
      leave();
      this.#alone--;
      this.#wake();
    }
  }

  #changed(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
