/**
 * A regular expression of a stranger's file, matched by steps that are counted.
 *
 * JavaScript's own engine backtracks without a bound: `(a+)+b` takes years for forty letters, and `a+b` the square of a text's
 * length. The patterns of known vocabularies are not among those and run there; every other one runs here, with the same
 * matches, until it has spent a number of steps that is proportional to the text.
 */

/** Steps for each unit of a text. Patterns of published tokenizers take two to six. */
const STEPS_PER_UNIT = 64;
/** Steps that a short text may take beyond those. */
const SPARE_STEPS = 100_000;

/** UTF-16 units of a pattern: the longest known has about 800. */
const MAX_LENGTH = 16 * 1024;
/** Different classes of characters, each of which keeps what it has found. */
const MAX_CLASSES = 256;
/** Nesting of groups: each level takes some of the stack. */
const MAX_NESTING = 100;
/** Copies of an atom that a count like `{1,3}` may ask for. */
const MAX_COUNT = 1000;

type Then = (at: number) => boolean;
/** Tries to match from a place, and what follows from each place where it can end. */
type Matcher = (at: number, then: Then) => boolean;

/** Whether a character belongs, as its length; 0 where not. */
type Single = (at: number) => number;

interface Parsed {
  match: Matcher;
  /** Units that it matches at most, where that is bounded. */
  longest: number;
  /** Where it is one character. */
  single?: Single;
}

export class Pattern {
  /** By which the methods of strings know that all matches are wanted. */
  readonly flags = "gu";
  readonly #source: string;
  readonly #classes = new Map<string, Single>();
  readonly #match: Matcher;
  #at = 0;
  #text = "";
  #left = 0;

  /** @param source in JavaScript's syntax, with the flag `u` */
  constructor(source: string) {
    if (source.length > MAX_LENGTH) throw new Error(`the pattern has more than ${MAX_LENGTH} characters`);
    this.#source = source;
    const parsed = this.#choice(0);
    if (this.#at < source.length) throw new Error(`the pattern has a ")" too many at ${this.#at}`);
    this.#match = parsed.match;
  }

  *matches(text: string): Generator<{ 0: string; index: number }> {
    let end = -1;
    for (let at = 0; at <= text.length; ) {
      // Others may have matched by this pattern since.
      if (this.#text !== text || at === 0) {
        this.#text = text;
        this.#left = STEPS_PER_UNIT * text.length + SPARE_STEPS;
      }
      const found = this.#match(at, (place) => {
        end = place;
        return true;
      });
      if (found) yield { 0: text.slice(at, end), index: at };
      const code = text.codePointAt(at);
      at = found && end > at ? end : at + (code !== undefined && code > 0xffff ? 2 : 1);
    }
  }

  /** As the methods of strings call a pattern. */
  [Symbol.match](text: string): string[] | null {
    const all = Array.from(this.matches(text), (one) => one[0]);
    return all.length > 0 ? all : null;
  }

  [Symbol.matchAll](text: string): Generator<{ 0: string; index: number }> {
    return this.matches(text);
  }

  [Symbol.replace](text: string, by: string): string {
    let replaced = "";
    let copied = 0;
    for (const { 0: match, index } of this.matches(text)) {
      replaced += text.slice(copied, index) + by;
      copied = index + match.length;
    }
    return replaced + text.slice(copied);
  }

  #spend(): void {
    if (--this.#left < 0) throw new Error("the pattern tries too many ways to match this text");
  }

  /** `a|b|c`, up to the end of the source or of the group. */
  #choice(depth: number): Parsed {
    if (depth > MAX_NESTING) throw new Error(`the pattern has more than ${MAX_NESTING} groups in one another`);
    const options = [this.#sequence(depth)];
    while (this.#source[this.#at] === "|") {
      this.#at++;
      options.push(this.#sequence(depth));
    }
    const [only] = options;
    if (options.length === 1) return only as Parsed;
    const matchers = options.map((option) => option.match);
    return {
      match: (at, then) => {
        for (const match of matchers) if (match(at, then)) return true;
        return false;
      },
      longest: Math.max(...options.map((option) => option.longest)),
    };
  }

  #sequence(depth: number): Parsed {
    const parts: Parsed[] = [];
    while (this.#at < this.#source.length && !"|)".includes(this.#source[this.#at] as string)) {
      parts.push(this.#quantified(depth));
    }
    const [only] = parts;
    if (parts.length === 1) return only as Parsed;
    const match = parts.reduceRight<Matcher>(
      (rest, part) => (at, then) => part.match(at, (next) => rest(next, then)),
      (at, then) => then(at),
    );
    return { match, longest: parts.reduce((sum, part) => sum + part.longest, 0) };
  }

  #quantified(depth: number): Parsed {
    const atom = this.#atom(depth);
    const [whole, sign, low, comma, high] =
      /^(?:([*+?])|\{(\d{1,9})(,)?(\d{1,9})?\})\??/.exec(this.#source.slice(this.#at, this.#at + 32)) ?? [];
    if (whole === undefined) return atom;
    this.#at += whole.length;
    const lazy = whole.length > 1 && whole.endsWith("?");
    const least = sign ? (sign === "+" ? 1 : 0) : Number(low);
    const most = sign ? (sign === "?" ? 1 : Infinity) : high ? Number(high) : comma ? Infinity : least;
    if (least > MAX_COUNT || (most !== Infinity && (most > MAX_COUNT || most < least))) {
      throw new Error(`the pattern counts ${whole}; at most ${MAX_COUNT} is supported`);
    }
    const longest = most === 0 ? 0 : atom.longest * most;
    const match = atom.single && !lazy ? this.#run(atom.single, least, most) : this.#repeat(atom, least, most, lazy);
    return { match, longest };
  }

  /** As many of one character as there are, and then fewer. */
  #run(single: Single, least: number, most: number): Matcher {
    return (start, then) => {
      let at = start;
      let count = 0;
      while (count < most) {
        const length = single(at);
        if (length === 0) break;
        at += length;
        count++;
      }
      for (; count >= least; count--) {
        this.#spend();
        if (then(at)) return true;
        if (count === least) return false;
        const low = this.#text.charCodeAt(at - 1);
        const paired = (low & 0xfc00) === 0xdc00 && at - 2 >= start && single(at - 2) === 2;
        at -= paired ? 2 : 1;
      }
      return false;
    };
  }

  #repeat({ match }: Parsed, least: number, most: number, lazy: boolean): Matcher {
    const from = (start: number, count: number, then: Then): boolean => {
      this.#spend();
      if (lazy && count >= least && then(start)) return true;
      // A round that matches nothing would go on for ever.
      const more = (next: number) => (next > start || count < least) && from(next, count + 1, then);
      if (count < most && match(start, more)) return true;
      return !lazy && count >= least && then(start);
    };
    return (at, then) => from(at, 0, then);
  }

  #atom(depth: number): Parsed {
    const source = this.#source;
    const rest = source.slice(this.#at, this.#at + 4);
    if (rest.startsWith("(")) return this.#group(depth);
    if (rest.startsWith("^") || rest.startsWith("$")) {
      this.#at++;
      const begin = rest.startsWith("^");
      return this.#assertion((at) => at === (begin ? 0 : this.#text.length));
    }
    if (/^\\[bBk1-9]/.test(rest)) throw new Error(`the pattern has ${rest.slice(0, 2)}, which is not supported`);
    const end = this.#endOfCharacter();
    const written = source.slice(this.#at, end);
    this.#at = end;
    const single = /^[^\\[.]/.test(written) ? this.#literal(written) : this.#class(written);
    return {
      match: (at, then) => {
        const length = single(at);
        return length > 0 && then(at + length);
      },
      longest: 2,
      single,
    };
  }

  #assertion(holds: (at: number) => boolean): Parsed {
    const match: Matcher = (at, then) => {
      this.#spend();
      return holds(at) && then(at);
    };
    return { match, longest: 0 };
  }

  #group(depth: number): Parsed {
    const [opening, kind = ""] = /^\((\?(?:<?[=!]|:|<[^>]*>))?/.exec(this.#source.slice(this.#at)) as RegExpExecArray;
    if (opening === "(" && this.#source[this.#at + 1] === "?")
      throw new Error("the pattern has a group of an unknown kind");
    this.#at += opening.length;
    const inner = this.#choice(depth + 1);
    if (this.#source[this.#at] !== ")") throw new Error("the pattern has a group without an end");
    this.#at++;
    const wanted = !kind.endsWith("!");
    if (kind === "?=" || kind === "?!") return this.#assertion((at) => inner.match(at, () => true) === wanted);
    if (kind !== "?<=" && kind !== "?<!") return { ...inner, match: inner.match };
    if (inner.longest > MAX_COUNT) throw new Error("the pattern looks back without a bound");
    return this.#assertion((at) => {
      for (let start = at; start >= 0 && start >= at - inner.longest; start--) {
        if (inner.match(start, (end) => end === at)) return wanted;
      }
      return !wanted;
    });
  }

  /** Where the character, escape or class ends that begins here. */
  #endOfCharacter(): number {
    const source = this.#source;
    const written = /^(?:\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|.)|.)/su;
    const one = (at: number) => at + (written.exec(source.slice(at, at + 64))?.[0].length ?? 1);
    if (source[this.#at] !== "[") return one(this.#at);
    let at = this.#at + 1;
    while (at < source.length && source[at] !== "]") at = one(at);
    return at + 1;
  }

  #literal(written: string): Single {
    // Some characters mean nothing alone: the engine refuses them.
    new RegExp(written, "u");
    return (at) => {
      this.#spend();
      return this.#text.startsWith(written, at) ? written.length : 0;
    };
  }

  /** What was found for a character is kept: patterns ask for the same ones again and again. The engine itself says what one is. */
  #class(written: string): Single {
    const made = this.#classes.get(written);
    if (made) return made;
    if (this.#classes.size === MAX_CLASSES) throw new Error(`the pattern has more than ${MAX_CLASSES} classes`);
    const test = new RegExp(`^${written}$`, "u");
    // By 256 characters each, as a text has them: a pattern may have hundreds of classes, and a tokenizer many patterns.
    const known: (Uint8Array | undefined)[] = [];
    const single = (at: number) => {
      this.#spend();
      const unit = this.#text.charCodeAt(at);
      if (Number.isNaN(unit)) return 0;
      const code = (unit & 0xfc00) === 0xd800 ? (this.#text.codePointAt(at) as number) : unit;
      if (code > 0xffff) return test.test(String.fromCodePoint(code)) ? 2 : 0;
      known[code >> 8] ??= new Uint8Array(256);
      const page = known[code >> 8] as Uint8Array;
      if (page[code & 255] === 0) page[code & 255] = test.test(String.fromCharCode(code)) ? 2 : 1;
      return page[code & 255] === 2 ? 1 : 0;
    };
    this.#classes.set(written, single);
    return single;
  }
}
