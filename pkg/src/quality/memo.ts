/** What a prune has measured, kept as text so that the next run goes on from it. */

/** @param about what the numbers are of: another model or other texts begin anew */
export function readMemo(text: string, about: string): Map<string, number> {
  try {
    const { about: of, numbers } = JSON.parse(text) as { about: string; numbers: [string, number][] };
    return of === about ? new Map(numbers) : new Map();
  } catch {
    // Cut off while it was written.
    return new Map();
  }
}

export const memoText = (memo: ReadonlyMap<string, number>, about: string): string =>
  JSON.stringify({ about, numbers: [...memo] });
