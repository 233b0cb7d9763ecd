/** Token ids in, text out, piece by piece: whole characters only, each as soon as it is certain. */

/** What a stream needs of a tokenizer. */
interface Decoder {
  /** Spaces at the start of a text that are not part of it. */
  readonly leadingSpaces: number;
  /** The bytes of an id; none for a special token unless `special`. */
  bytes(id: number, special: boolean): Uint8Array;
}

export interface TextStreamOptions {
  /** Keep special tokens in the text. @default false */
  special?: boolean;
  /** The text goes on from other text: a space at its start is kept. @default false */
  continues?: boolean;
}

const NONE = new Uint8Array(0);

/** The pieces that `push` and `flush` return make up what `tokenizer.decode` returns for all ids at once. */
export class TextStream {
  readonly #tokenizer: Decoder;
  readonly #special: boolean;
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  /** The start of a character whose other bytes may still come: three bytes at most. */
  #pending: Uint8Array = NONE;
  #leadingSpaces: number;

  constructor(tokenizer: Decoder, { special = false, continues = false }: TextStreamOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#special = special;
    this.#leadingSpaces = continues ? 0 : tokenizer.leadingSpaces;
  }

  /** The text that this id makes certain; empty while a character is incomplete. */
  push(id: number): string {
    let bytes = this.#tokenizer.bytes(id, this.#special);
    if (bytes.length === 0) return "";
    if (this.#pending.length > 0) bytes = concat(this.#pending, bytes);
    const whole = bytes.length - incompleteTail(bytes);
    this.#pending = bytes.subarray(whole);
    return this.#strip(this.#utf8.decode(bytes.subarray(0, whole)));
  }

  /** Ends the text: bytes that never became a character show as U+FFFD. */
  flush(): string {
    const rest = this.#pending;
    this.#pending = NONE;
    return this.#strip(this.#utf8.decode(rest));
  }

  #strip(text: string): string {
    if (this.#leadingSpaces === 0 || text === "") return text;
    let at = 0;
    while (at < this.#leadingSpaces && text[at] === " ") at++;
    // Only where all of the text so far was dropped may there be more to drop.
    this.#leadingSpaces = at === text.length ? this.#leadingSpaces - at : 0;
    return text.slice(at);
  }
}

/** How many bytes at the end begin a character that further bytes could complete. */
function incompleteTail(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const lead = bytes[bytes.length - back] as number;
    if ((lead & 0xc0) === 0x80) continue;
    const needed =
      lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xc2 && lead <= 0xdf ? 2 : 1;
    if (needed <= back) return 0;
    return back === 1 || canFollow(lead, bytes[bytes.length - back + 1] as number) ? back : 0;
  }
  return 0;
}

/** Some leads narrow their second byte: no overlong forms, no surrogates, nothing above U+10FFFF. */
function canFollow(lead: number, second: number): boolean {
  const low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  return second >= low && second <= high;
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
