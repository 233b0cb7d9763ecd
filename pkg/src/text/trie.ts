/** Words that are looked for in a text. */

import { EngineError } from "../types/errors.ts";

/** Most have one child: a map for each would take ten times as much as the words themselves, in many words. */
class Node {
  /** Whether a word ends here. */
  end = false;
  /** The first child's unit. */
  unit = -1;
  child: Node | undefined = undefined;
  more: Map<number, Node> | null = null;

  get(unit: number): Node | undefined {
    return unit === this.unit ? this.child : this.more?.get(unit);
  }

  make(unit: number): Node {
    const made = new Node();
    if (this.child) {
      this.more ??= new Map();
      this.more.set(unit, made);
    } else {
      this.unit = unit;
      this.child = made;
    }
    return made;
  }
}

/** Units looked at for each unit of a text, on average: words are gone through once, and one in ten of what is no word. */
const MAX_LOOKS = 8;

/** A budget, which several searches may share. */
export interface Looks {
  left: number;
}

export interface Match {
  start: number;
  end: number;
}

export class Trie {
  readonly #root = new Node();

  constructor(words: Iterable<string>) {
    for (const word of words) {
      let at = this.#root;
      for (let i = 0; i < word.length; i++) {
        const unit = word.charCodeAt(i);
        at = at.get(unit) ?? at.make(unit);
      }
      at.end = true;
    }
  }

  /**
   * The words in a text from left to right, the longest at each place, without overlaps. `accepts` may refuse a match; then the next
   * shorter one is tried.
   *
   * @param looks units that may still be looked at
   */
  find(
    text: string,
    accepts: (match: Match) => boolean = () => true,
    looks: Looks = { left: MAX_LOOKS * text.length + (1 << 16) },
  ): Match[] {
    const found: Match[] = [];
    if (!this.#root.child) return found;
    for (let start = 0; start < text.length; ) {
      let at = this.#root.get(text.charCodeAt(start));
      if (!at) {
        start++;
        continue;
      }
      const ends: number[] = [];
      for (let end = start + 1; at; end++) {
        if (at.end) ends.push(end);
        looks.left--;
        at = end < text.length ? at.get(text.charCodeAt(end)) : undefined;
      }
      if (looks.left < 0) throw tooMuch(text.length);
      const end = ends.findLast((end) => accepts({ start, end }));
      if (end !== undefined) found.push({ start, end });
      start = end ?? start + 1;
    }
    return found;
  }

  /**
   * Whether a text could go on to be a word: all of it, from a place on in one direction, is the beginning of one that is longer.
   *
   * @param looks units that may still be looked at
   */
  begins(text: string, from: number, step: 1 | -1, looks: Looks): boolean {
    let at: Node | undefined = this.#root;
    for (let i = from; i >= 0 && i < text.length; i += step) {
      if (--looks.left < 0) throw tooMuch(text.length);
      at = at.get(text.charCodeAt(i));
      if (!at) return false;
    }
    return at.child !== undefined;
  }
}

function tooMuch(length: number): EngineError {
  const message = `added tokens that have long beginnings in common: a text of length ${length} cannot be searched for them`;
  return new EngineError("BadTokenizer", message, { key: "added_tokens" });
}
