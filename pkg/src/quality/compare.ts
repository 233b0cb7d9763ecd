/** Two models' predictions of the same tokens. */

export function winner(logits: Float32Array): number {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id]! > logits[best]!) best = id;
  return best;
}

/** Kullback-Leibler divergence of `other` from `own`, in nats. Each comes with its `logSum`. */
export function divergence(own: Float32Array, ownSum: number, other: Float32Array, otherSum: number): number {
  let total = 0;
  for (let id = 0; id < own.length; id++) {
    const log = own[id]! - ownSum;
    total += Math.exp(log) * (log - (other[id]! - otherSum));
  }
  // Sums of rounded numbers can lie a little below what is never negative.
  return Math.max(0, total);
}

/** Mean and its standard error. */
export class Mean {
  #count = 0;
  #sum = 0;
  #squares = 0;

  add(value: number): void {
    this.#count++;
    this.#sum += value;
    this.#squares += value * value;
  }

  get count(): number {
    return this.#count;
  }

  get mean(): number {
    return this.#count > 0 ? this.#sum / this.#count : 0;
  }

  /** null of a single value, which has none. */
  get error(): number | null {
    if (this.#count < 2) return null;
    const variance = Math.max(0, this.#squares / this.#count - this.mean ** 2);
    return Math.sqrt(variance / (this.#count - 1));
  }
}
