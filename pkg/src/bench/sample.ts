/** A sample of many numbers. */

import { randomBits } from "./blocks.ts";

/** Numbers that are kept. */
const NOTED = 1 << 14;

/**
 * The largest of many numbers, and a uniform sample of them (reservoir sampling): what is noted must not be what makes memory grow.
 */
export class Sample {
  readonly values: number[] = [];
  most = 0;
  #count = 0;
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = randomBits(seed);
  }

  push(value: number): void {
    this.most = Math.max(this.most, value);
    this.#count++;
    const at = this.values.length < NOTED ? this.values.length : this.#random() % this.#count;
    if (at < NOTED) this.values[at] = value;
  }
}
