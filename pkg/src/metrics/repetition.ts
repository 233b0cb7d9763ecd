/** How many tokens of a run count. */
const GRAM = 3;

/**
 * The share of runs of three tokens that were there before: 0 for a text that never repeats itself, near 1 for a loop.
 *
 * @param tokens the ids of an answer
 * @example
 * ```ts
 * import { repetitionScore } from "ternlight";
 *
 * console.log(repetitionScore([1, 2, 3, 4, 5]), repetitionScore([1, 2, 1, 2, 1, 2, 1, 2]));
 * ```
 */
export function repetitionScore(tokens: readonly number[] | Uint32Array | Int32Array): number {
  const seen = new Set<string>();
  const count = tokens.length - GRAM + 1;
  for (let i = 0; i < count; i++) seen.add(`${tokens[i]} ${tokens[i + 1]} ${tokens[i + 2]}`);
  return count > 0 ? 1 - seen.size / count : 0;
}
