/** The error of a call that a command does not accept, and the nearest of some words. */

import { EngineError, type ErrorDetail } from "../types/errors.ts";

/** Ends the program with status 2 and the usage line. */
export class UsageError extends EngineError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super("InvalidArgument", message, detail);
  }
}

/** The word that is most like what was written; a common beginning counts double. */
export function nearest(written: string, words: readonly string[]): string {
  const scored = words.map((word) => ({ word, score: distance(written, word) - commonPrefix(written, word) }));
  return scored.reduce((best, one) => (one.score < best.score ? one : best)).word;
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < Math.min(a.length, b.length) && a[length] === b[length]) length++;
  return length;
}

/** Letters to insert, remove or change (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
