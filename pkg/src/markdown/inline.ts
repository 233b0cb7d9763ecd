/**
 * What stands inside a block of Markdown: emphasis, code, links and breaks, as a flat list of marks that open and close. The time is linear
 * in the length of the text for every input.
 */

export type Tag = "em" | "strong" | "del";

export type Mark =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "break" }
  | { kind: "open"; tag: Tag }
  | { kind: "open"; tag: "a"; address: string }
  | { kind: "close"; tag: Tag | "a" };

/** Longer addresses are text: no link of a real page needs more. */
const MAX_ADDRESS = 2048;
/** Marks that may be open at a time; more are text. */
const MAX_OPEN = 32;

const PUNCTUATION = /[\p{P}\p{S}]/u;
/** Characters that are never more than text. */
const PLAIN = /[^\\`*_~[\]!<\nhH]+/y;
const BARE = /https?:\/\/[^\s<>"`|\\^{}]{1,2000}/iy;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const BREAK = /<br ?\/?>/iy;
const RUN = /`+/g;

/** A run of `*`, `_` or `~` that may open or close emphasis. */
interface Delimiter {
  at: number;
  character: string;
  count: number;
  opens: boolean;
  closes: boolean;
}

/** The address of a link that a reader may follow; null for every other, so scripts and data cannot be run by a click. */
export function safeAddress(text: string): string | null {
  if (text.length > MAX_ADDRESS) return null;
  try {
    const { protocol, href } = new URL(text);
    return ["https:", "http:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

export function parseInline(text: string): Mark[] {
  return new Inline(text).parse();
}

class Inline {
  #text: string;
  #at = 0;
  /** Where the plain text begins that is no mark yet. */
  #from = 0;
  #marks: Mark[] = [];
  #delimiters: Delimiter[] = [];
  /** Where `[` stands in the marks, and how many delimiters had come by then. */
  #brackets: { mark: number; delimiters: number }[] = [];
  /** Marks that go before those of an index, and after. */
  #opened = new Map<number, Mark[]>();
  #closed = new Map<number, Mark[]>();
  /** By length, where the last run of backticks begins: a run after it has no end. */
  #lastRun = new Map<number, number>();

  constructor(text: string) {
    this.#text = text;
    RUN.lastIndex = 0;
    for (const run of text.matchAll(RUN)) this.#lastRun.set(run[0].length, run.index);
  }

  parse(): Mark[] {
    while (this.#at < this.#text.length) this.#step();
    this.#flush();
    this.#emphasize(0);
    return this.#marks.flatMap((mark, at) => [
      ...(this.#opened.get(at) ?? []),
      ...(mark.kind === "text" && mark.text === "" ? [] : [mark]),
      ...(this.#closed.get(at) ?? []),
    ]);
  }

  #step(): void {
    PLAIN.lastIndex = this.#at;
    if (PLAIN.test(this.#text)) this.#at = PLAIN.lastIndex;
    else if (!this.#special(this.#text[this.#at]!)) this.#at++;
  }

  /** @returns whether the character is more than text */
  #special(character: string): boolean {
    if (character === "\\") return this.#escape();
    if (character === "`") return this.#code();
    if (character === "*" || character === "_" || character === "~") return this.#delimiter(character);
    if (character === "[") return this.#bracket(1);
    if (character === "!") return this.#text[this.#at + 1] === "[" && this.#bracket(2);
    if (character === "]") return this.#closeBracket();
    if (character === "<") return this.#angled();
    if (character === "\n") return this.#newline();
    return this.#bare();
  }

  /** The text so far becomes a mark, and what follows begins after `length` characters. */
  #flush(length = 0, end = this.#at): void {
    if (end > this.#from) this.#marks.push({ kind: "text", text: this.#text.slice(this.#from, end) });
    this.#at += length;
    this.#from = this.#at;
  }

  #push(mark: Mark, length: number): true {
    this.#flush(length);
    this.#marks.push(mark);
    return true;
  }

  #escape(): boolean {
    const next = this.#text[this.#at + 1] ?? "";
    if (next === "\n") return this.#push({ kind: "break" }, 2);
    if (!/[!-/:-@[-`{-~]/.test(next)) return false;
    return this.#push({ kind: "text", text: next }, 2);
  }

  #code(): boolean {
    RUN.lastIndex = this.#at;
    const [run] = RUN.exec(this.#text)!;
    const start = this.#at + run.length;
    if ((this.#lastRun.get(run.length) ?? 0) < start) {
      this.#at = start;
      return true;
    }
    let end = RUN.exec(this.#text)!;
    while (end[0].length !== run.length) end = RUN.exec(this.#text)!;
    const inside = this.#text.slice(start, end.index).replaceAll("\n", " ");
    const padded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
    const text = padded ? inside.slice(1, -1) : inside;
    return this.#push({ kind: "code", text }, end.index + run.length - this.#at);
  }

  /** Two spaces before the end of a line break it. */
  #newline(): boolean {
    let end = this.#at;
    while (end > this.#from && this.#text[end - 1] === " ") end--;
    if (this.#at - end >= 2) {
      this.#flush(1, end);
      this.#marks.push({ kind: "break" });
    } else {
      this.#flush(0, end);
      this.#at++;
    }
    return true;
  }

  #angled(): boolean {
    ANGLED.lastIndex = BREAK.lastIndex = this.#at;
    const lineBreak = BREAK.exec(this.#text);
    if (lineBreak) return this.#push({ kind: "break" }, lineBreak[0].length);
    const found = ANGLED.exec(this.#text);
    const address = found && safeAddress(found[1]!);
    return !!found && !!address && this.#link(address, found[1]!, found[0].length);
  }

  #bare(): boolean {
    if (/[\p{L}\p{N}]/u.test(this.#text[this.#at - 1] ?? "")) return false;
    BARE.lastIndex = this.#at;
    // What ends a sentence is no part of an address, and neither is emphasis around it.
    const shown = BARE.exec(this.#text)?.[0].replace(/[.,;:!?'*_~)\]]+$/, "");
    const address = shown && safeAddress(shown);
    // Inside brackets it is the text of a link.
    return !!shown && !!address && this.#brackets.length === 0 && this.#link(address, shown, shown.length);
  }

  #link(address: string, shown: string, length: number): true {
    this.#flush(length);
    this.#marks.push({ kind: "open", tag: "a", address }, { kind: "text", text: shown }, { kind: "close", tag: "a" });
    return true;
  }

  #bracket(length: number): true {
    this.#flush();
    if (this.#brackets.length === MAX_OPEN) this.#brackets.shift();
    this.#brackets.push({ mark: this.#marks.length, delimiters: this.#delimiters.length });
    return this.#push({ kind: "text", text: this.#text.slice(this.#at, this.#at + length) }, length);
  }

  /** `](address)` makes a link of what stands since the bracket. Of an image its description is one: nothing is fetched. */
  #closeBracket(): boolean {
    const bracket = this.#brackets.pop();
    const found = bracket && destination(this.#text, this.#at + 1);
    const address = found && safeAddress(found.address);
    if (!bracket || !found || !address) return false;
    this.#flush();
    this.#emphasize(bracket.delimiters);
    this.#marks[bracket.mark] = { kind: "open", tag: "a", address };
    if (this.#marks.length === bracket.mark + 1) this.#marks.push({ kind: "text", text: address });
    // A link holds no links.
    this.#brackets = [];
    return this.#push({ kind: "close", tag: "a" }, found.end - this.#at);
  }

  #delimiter(character: string): true {
    let count = 1;
    while (this.#text[this.#at + count] === character) count++;
    const before = this.#text[this.#at - 1] ?? " ";
    const after = this.#text[this.#at + count] ?? " ";
    const left = flanks(after, before);
    const right = flanks(before, after);
    const word = character === "_";
    const known = character === "~" ? count === 2 : count <= MAX_OPEN;
    this.#flush();
    this.#delimiters.push({
      at: this.#marks.length,
      character,
      count,
      opens: known && left && (!word || !right || PUNCTUATION.test(before)),
      closes: known && right && (!word || !left || PUNCTUATION.test(after)),
    });
    return this.#push({ kind: "text", text: character.repeat(count) }, count);
  }

  /** Pairs the delimiters since an index, the innermost first, and forgets them. */
  #emphasize(from: number): void {
    const open: Delimiter[] = [];
    for (const closer of this.#delimiters.splice(from)) {
      while (closer.closes && closer.count > 0) {
        let found = open.length - 1;
        while (found >= 0 && !pairs(open[found]!, closer)) found--;
        if (found < 0) break;
        // What stands open between them has no end.
        open.length = found + 1;
        this.#pair(open[found]!, closer);
        if (open[found]!.count === 0) open.pop();
      }
      if (!closer.opens || closer.count === 0) continue;
      if (open.length === MAX_OPEN) open.shift();
      open.push(closer);
    }
  }

  #pair(opener: Delimiter, closer: Delimiter): void {
    const length = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const tag = opener.character === "~" ? "del" : length === 2 ? "strong" : "em";
    // The marks are taken from the sides that face each other.
    this.#opened.set(opener.at + 1, [{ kind: "open", tag }, ...(this.#opened.get(opener.at + 1) ?? [])]);
    this.#closed.set(closer.at - 1, [...(this.#closed.get(closer.at - 1) ?? []), { kind: "close", tag }]);
    for (const one of [opener, closer]) {
      one.count -= length;
      this.#marks[one.at] = { kind: "text", text: one.character.repeat(one.count) };
    }
  }
}

/** Beside what emphasis may begin or end at a punctuation mark: CommonMark's characters, and letters of scripts without spaces. */
const BOUNDARY = /[\s\p{P}\p{S}\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Thai}]/u;

/** Whether a run of delimiters touches text on one side. */
const flanks = (near: string, far: string) => !/\s/.test(near) && (!PUNCTUATION.test(near) || BOUNDARY.test(far));

function pairs(opener: Delimiter, closer: Delimiter): boolean {
  if (opener.character !== closer.character) return false;
  const both = opener.closes || closer.opens;
  const sum = opener.count + closer.count;
  return !both || sum % 3 !== 0 || (opener.count % 3 === 0 && closer.count % 3 === 0);
}

/** The address in parentheses at an offset, with a title or without, and where it ends. */
function destination(text: string, at: number): { address: string; end: number } | null {
  if (text[at] !== "(") return null;
  const near = text.slice(at + 1, at + 1 + MAX_ADDRESS);
  const found = /^\s*(?:<([^<>\n]*)>|[^\s<]\S*)/.exec(near);
  if (!found) return null;
  const start = found[0].length - found[0].trimStart().length;
  const length = found[1] === undefined ? lengthOf(found[0].slice(start)) : found[0].length - start;
  const rest = /^(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(near.slice(start + length));
  if (!rest) return null;
  return { address: found[1] ?? near.slice(start, start + length), end: at + 1 + start + length + rest[0].length };
}

/** An address goes on until the parenthesis that it has not opened itself. */
function lengthOf(text: string): number {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "(" && ++depth > MAX_OPEN) return at;
    if (text[at] === ")" && depth-- === 0) return at;
  }
  return text.length;
}
