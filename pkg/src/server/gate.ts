/** Lets many work at once, or one alone. */

export class Gate {
  #active = 0;
  /** Those who want to be alone, in turn: while one waits, nobody else begins. */
  #alone = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: (() => void)[] = [];

  async shared<T>(work: () => Promise<T>): Promise<T> {
    while (this.#alone > 0) await this.#changed();
    this.#active++;
    try {
      return await work();
    } finally {
      this.#active--;
      this.#wake();
    }
  }

  alone<T>(work: () => Promise<T>): Promise<T> {
    this.#alone++;
    const run = async () => {
      while (this.#active > 0) await this.#changed();
      try {
        return await work();
      } finally {
        this.#alone--;
        this.#wake();
      }
    };
    const done = this.#turn.then(run, run);
    this.#turn = done.catch(() => {});
    return done;
  }

  #changed(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
