/** The nearest of some words. */

const bare = (word: string) => word.toLowerCase().replace(/[-_]/g, "");

/** Letters that two words have in common at their beginning. */
function common(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}

const reversed = (word: string) => [...word].reverse().join("");

/**
 * The word that is the same but for case, hyphens and two letters in one place; undefined where there is none. One that
 * is the same but for case and hyphens goes first: top_p is topP, whatever stands before it.
 */
export function meant(written: string, words: readonly string[]): string | undefined {
  const one = bare(written);
  const near = (word: string) => {
    const other = bare(word);
    return common(one, other) + common(reversed(one), reversed(other)) >= Math.max(one.length, other.length, 5) - 2;
  };
  return words.find((word) => bare(word) === one) ?? words.find(near);
}
