/**
 * Keeps special tokens that are written out in messages from becoming those tokens: text of a message could otherwise end its turn
 * and begin another.
 *
 * A template may do anything with a message before its text appears in the prompt. So the messages are marked before it renders
 * them: an invisible seam is put inside each special token that a message writes out, and at an end of a message that could
 * become part of one together with its neighbour. Seams are taken out again after rendering, and no special token is read across
 * one. Messages without such text are rendered unchanged.
 */

import { MAX_GUARD_LOOKS, MAX_LIST } from "./limits.ts";
import { type Match, Trie } from "./trie.ts";

/** A rendered chat: its text, and where no special token may be read across. */
export interface Rendered {
  text: string;
  /** Places in `text`, in rising order. */
  seams: readonly number[];
}

/** A Braille pattern: hardly a text has it, and no method of Python's changes, strips or escapes it. */
const SEAM = "\u28ff";

export class Guard {
  readonly #words: Trie;
  readonly #reversed: Trie;
  readonly #longest: number;
  #seam = SEAM;
  /** For all that is marked together, and what a template makes of it. */
  readonly #looks = { left: 0 };

  /** @param words texts of the special tokens */
  constructor(words: readonly string[]) {
    this.#words = new Trie(words);
    this.#reversed = new Trie(words.map((word) => word.split("").reverse().join("")));
    this.#longest = words.reduce((longest, word) => Math.max(longest, word.length), 0);
  }

  /** The same value with seams in its texts. What is rendered together is marked together. */
  mark<T>(value: T): T {
    this.#seam = unused(value);
    this.#looks.left = MAX_GUARD_LOOKS;
    return each(value, (text) => this.#text(text)) as T;
  }

  /**
   * For texts that a template has made of others. By leaving out or changing characters it may have put a special token together that
   * none of them has: such a one gets its seam here, and so do ends that are new.
   */
  deriving(from: readonly string[]): (made: string) => string {
    let before: ReadonlySet<string> | null = null;
    return (made) => {
      const written = this.#written(made);
      if (written.size === 0) return this.#ends(made);
      before ??= new Set(from.flatMap((text) => [...this.#written(text)]));
      for (const word of written) if (before.has(word)) written.delete(word);
      return written.size > 0 ? this.#text(made, written) : this.#ends(made);
    };
  }

  #found(text: string): Match[] {
    return this.#words.find(text, undefined, this.#looks);
  }

  /** The special tokens in a text that have no seam. */
  #written(text: string): Set<string> {
    return new Set(this.#found(text).map(({ start, end }) => text.slice(start, end)));
  }

  /** A text as its author wrote it, to compare it or to measure it. */
  plain(text: string): string {
    return text.replaceAll(this.#seam, "");
  }

  /** The characters of a text, each with the seam before it, and the last one with the seam behind it; null without any seam. */
  characters(text: string): string[] | null {
    if (!text.includes(this.#seam)) return null;
    const found: string[] = [];
    for (const [i, part] of text.split(this.#seam).entries()) {
      let seam = i === 0 ? "" : this.#seam;
      if (part === "" && found.length > 0) found.push(found.pop() + seam);
      for (const char of part) {
        found.push(seam + char);
        seam = "";
      }
    }
    return found;
  }

  /** Takes the seams out of a rendered text. */
  read(rendered: string): Rendered {
    const parts = rendered.split(this.#seam);
    const seams: number[] = [];
    let at = 0;
    for (const part of parts.slice(0, -1)) {
      at += part.length;
      seams.push(at);
    }
    return { text: parts.join(""), seams };
  }

  /** With seams inside its special tokens, all or some. */
  #text(text: string, words?: ReadonlySet<string>): string {
    let marked = "";
    let copied = 0;
    for (const { start, end } of this.#found(text)) {
      if (words?.has(text.slice(start, end)) === false) continue;
      const inside = start + ((text.codePointAt(start) as number) > 0xffff ? 2 : 1);
      marked += text.slice(copied, inside) + this.#seam;
      copied = inside;
    }
    return this.#ends(marked + text.slice(copied));
  }

  /** With seams at the ends where the text could go on to be a special token, or could be the rest of one. */
  #ends(text: string): string {
    let [before, after] = ["", ""];
    for (let length = 1; length < this.#longest && length <= text.length; length++) {
      if (before === "" && this.#reversed.begins(text, length - 1, -1, this.#looks)) before = this.#seam;
      if (after === "" && this.#words.begins(text, text.length - length, 1, this.#looks)) after = this.#seam;
    }
    return before + text + after;
  }
}

/** The value with its texts, keys among them, changed. What holds itself, or the same a million times, is refused. */
function each(value: unknown, change: (text: string) => string, budget = { left: MAX_LIST }): unknown {
  if (--budget.left < 0) throw new Error(`the messages hold more than ${MAX_LIST} values`);
  if (typeof value === "string") return change(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => each(item, change, budget));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), each(item, change, budget)]));
}

/** A text that the value does not have. Whoever guesses the random one only marks more of the own text. */
function unused(value: unknown): string {
  let used = false;
  each(value, (text) => {
    used ||= text.includes(SEAM);
    return text;
  });
  if (!used) return SEAM;
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => String.fromCharCode(0x2800 + byte)).join("");
}
