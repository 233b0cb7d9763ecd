/** Summaries of several runs. */

export interface Spread {
  median: number;
  least: number;
  most: number;
  /** In the order in which they were made. */
  runs: number[];
}

export function spread(runs: readonly number[]): Spread {
  return { median: percentile(runs, 50), least: Math.min(...runs), most: Math.max(...runs), runs: [...runs] };
}

/** The value below which `p` percent lie, between two neighbours where it falls between them. */
export function percentile(values: readonly number[], p: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (p / 100) * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(at)], sorted[Math.ceil(at)]];
  return low === undefined || high === undefined ? 0 : low + (high - low) * (at % 1);
}

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** How much one value differs from the one before it, on average. */
export function jitter(values: readonly number[]): number {
  const steps = values.slice(1).map((value, i) => Math.abs(value - values[i]!));
  return steps.length > 0 ? sum(steps) / steps.length : 0;
}
