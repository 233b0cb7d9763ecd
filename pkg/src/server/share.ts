/** A quantity that several share: who wants more than is free waits, in turn. */

interface Waiting {
  amount: number;
  begin(): void;
}

export class Share {
  #free: number;
  readonly #waiting: Waiting[] = [];

  constructor(all: number) {
    this.#free = all;
  }

  /** @returns what gives it back */
  async take(amount: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#waiting.length > 0 || amount > this.#free) await this.#turn(amount, signal);
    else this.#free -= amount;
    let taken = amount;
    return () => {
      this.#free += taken;
      taken = 0;
      this.#next();
    };
  }

  #turn(amount: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(one), 1);
        reject(signal.reason);
        this.#next();
      };
      const begin = () => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const one = { amount, begin };
      this.#waiting.push(one);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #next(): void {
    for (let [first] = this.#waiting; first && first.amount <= this.#free; [first] = this.#waiting) {
      this.#waiting.shift();
      this.#free -= first.amount;
      first.begin();
    }
  }
}
