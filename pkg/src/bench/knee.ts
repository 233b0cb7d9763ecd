/** Where a curve bends. */

/** The least bend that counts, as a share of the curve's whole rise. */
const MIN_BEND = 0.1;
/** A curve that rises by less than this share is flat. */
const FLAT = 0.05;

/**
 * The knee of a curve as Kneedle defines it (Satopää et al., 2011): with both axes scaled to 0 … 1, the point that lies farthest from the
 * diagonal. `up` looks above it, where a rise ends; `down` below it, where a rise begins.
 *
 * @returns the index of the point; 0 for a rise that has ended before it began, null where the curve does not bend
 */
export function knee(xs: readonly number[], ys: readonly number[], side: "up" | "down"): number | null {
  const [least, most] = [Math.min(...ys), Math.max(...ys)];
  if (xs.length < 2) return null;
  if (side === "up" && ys.at(-1)! < (1 + FLAT) * ys[0]! && ys[0]! >= (1 - FLAT) * most) return 0;
  if (xs.length < 3 || most < (1 + FLAT) * least) return null;
  const bends = xs.map((x, i) => {
    const bend = (ys[i]! - least) / (most - least) - (x - xs[0]!) / (xs.at(-1)! - xs[0]!);
    return side === "up" ? bend : -bend;
  });
  const largest = Math.max(...bends);
  return largest < MIN_BEND ? null : bends.indexOf(largest);
}

/** The straight line through points with the least squares of its errors. */
export function line(xs: readonly number[], ys: readonly number[]): { base: number; slope: number } {
  const mean = (values: readonly number[]) => values.reduce((total, value) => total + value, 0) / values.length;
  const [x, y] = [mean(xs), mean(ys)];
  const square = xs.reduce((total, value) => total + (value - x) ** 2, 0);
  const product = xs.reduce((total, value, i) => total + (value - x) * (ys[i]! - y), 0);
  const slope = square > 0 ? product / square : 0;
  return { base: y - slope * x, slope };
}
