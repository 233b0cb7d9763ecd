/** What a measurement of settings keeps of what it has done, for a run that goes on from there. */

import type { LoadOptions } from "../types/index.ts";
import type { QualityRow, Setting } from "./report.ts";
import type { KeptSums, Sums } from "./tasks.ts";

/** What a setting's numbers are, however the model runs; and how it runs. */
export type Numbers = Pick<QualityRow, "perplexity" | "interval" | "nll" | "tokens" | "kl" | "sameWinner">;
export type Run = Pick<QualityRow, "promptPerSecond" | "predictedPerSecond" | "weightBytes" | "memory">;
const NUMBERS = ["perplexity", "nll", "tokens", "kl", "sameWinner"] as const satisfies (keyof Numbers)[];
const RUN = ["promptPerSecond", "predictedPerSecond", "weightBytes", "memory"] as const satisfies (keyof Run)[];

/** What a memo has of one setting. Marks come last, so that a row is there whole or not at all. */
export class Kept implements KeptSums {
  readonly #memo: Map<string, number>;
  readonly #of: string;
  readonly #run: string;

  constructor(memo: Map<string, number>, setting: Setting, { threads, flavour, weightPrefetch }: LoadOptions) {
    this.#memo = memo;
    this.#of = JSON.stringify(setting);
    // They change no number of the first kind: what was measured with others is used again, but for its speed.
    this.#run = `${this.#of} ${JSON.stringify([threads, flavour, weightPrefetch])}`;
  }

  row(): Numbers | null {
    const found = this.#found(this.#of, [...NUMBERS, "low", "high"]);
    if (!found) return null;
    const { low, high, ...numbers } = found;
    return { ...numbers, interval: low === null ? null : [low, high] } as Numbers;
  }

  keep({ interval, ...numbers }: Numbers): void {
    const [low, high] = interval ?? [null, null];
    this.#keep(this.#of, { ...numbers, low, high });
  }

  run(): Run | null {
    return this.#found(this.#run, RUN) as Run | null;
  }

  keepRun(run: Run): void {
    this.#keep(this.#run, { ...run });
  }

  #found(of: string, names: readonly string[]): Record<string, number | null> | null {
    if (!this.#memo.has(`${of} whole`)) return null;
    return Object.fromEntries(names.map((name) => [name, this.#memo.get(`${of} ${name}`) ?? null]));
  }

  /** What there is none of, of other vocabularies, is left out. */
  #keep(of: string, numbers: Readonly<Record<string, number | null>>): void {
    for (const [name, value] of Object.entries(numbers)) if (value !== null) this.#memo.set(`${of} ${name}`, value);
    this.#memo.set(`${of} whole`, 1);
  }

  task(at: number): Sums | null {
    const count = this.#memo.get(`${this.#of} task ${at}`);
    if (count === undefined) return null;
    const of = (what: string) =>
      Array.from({ length: count }, (_, choice) => this.#memo.get(`${this.#of} task ${at} ${choice} ${what}`)!);
    return { sums: of("sum"), tokens: of("tokens") };
  }

  keepTask(at: number, { sums, tokens }: Sums): void {
    for (const [choice, sum] of sums.entries()) {
      this.#memo.set(`${this.#of} task ${at} ${choice} sum`, sum);
      this.#memo.set(`${this.#of} task ${at} ${choice} tokens`, tokens[choice]!);
    }
    this.#memo.set(`${this.#of} task ${at}`, sums.length);
  }
}
