/** Words that are looked for in a text. */

import { EngineError } from "../types/errors.ts";

interface Node {
  next: Map<number, Node>;
  /** Whether a word ends here. */
  end: boolean;
}

const node = (): Node => ({ next: new Map(), end: false });

/** Code units looked at for each unit of a text, on average: no known vocabulary comes near it. */
const MAX_LOOKS = 64;

export interface Match {
  start: number;
  end: number;
}

export class Trie {
  readonly #root = node();

  constructor(words: Iterable<string>) {
    for (const word of words) {
      let at = this.#root;
      for (let i = 0; i < word.length; i++) {
        const unit = word.charCodeAt(i);
        const next = at.next.get(unit) ?? node();
        at.next.set(unit, next);
        at = next;
      }
      at.end = true;
    }
  }

  /**
   * The words in a text from left to right, the longest at each place, without overlaps. `accepts` may refuse a match; then the next
   * shorter one is tried.
   */
  find(text: string, accepts: (match: Match) => boolean = () => true): Match[] {
    const found: Match[] = [];
    if (this.#root.next.size === 0) return found;
    let looks = MAX_LOOKS * text.length + (1 << 16);
    for (let start = 0; start < text.length; ) {
      let at = this.#root.next.get(text.charCodeAt(start));
      if (!at) {
        start++;
        continue;
      }
      const ends: number[] = [];
      for (let end = start + 1; at; end++) {
        if (at.end) ends.push(end);
        looks--;
        at = end < text.length ? at.next.get(text.charCodeAt(end)) : undefined;
      }
      if (looks < 0) throw tooMuch(text.length);
      const end = ends.findLast((end) => accepts({ start, end }));
      if (end !== undefined) found.push({ start, end });
      start = end ?? start + 1;
    }
    return found;
  }

  /** Whether a text could go on to be a word: all of it is the beginning of one that is longer. */
  begins(units: Iterable<number>): boolean {
    let at: Node | undefined = this.#root;
    for (const unit of units) {
      at = at.next.get(unit);
      if (!at) return false;
    }
    return at.next.size > 0;
  }
}

function tooMuch(length: number): EngineError {
  const message = `added tokens that have long beginnings in common: a text of length ${length} cannot be searched for them`;
  return new EngineError("BadTokenizer", message, { key: "added_tokens" });
}
