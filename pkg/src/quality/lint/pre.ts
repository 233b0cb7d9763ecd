/**
 * Which pre-tokenizer a byte-level vocabulary was trained with, by its tokens: training merges only within the pieces that the
 * pre-tokenizer cuts, so that a token which the pieces of a name would cut in two is out of reach under that name.
 */

import { PRE_TOKENIZERS, type PreTokenizer } from "../../text/pretokenizers.ts";

/** Tokens that are looked at, spread over the vocabulary. */
const SAMPLE = 16384;

/** The bytes that byte-level vocabularies spell as other letters. */
const BYTE_OF = new Map<string, number>();
{
  const plain = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let other = 256;
  for (let byte = 0; byte < 256; byte++) BYTE_OF.set(String.fromCharCode(plain(byte) ? byte : other++), byte);
}

/** A token's text; null for one that is part of a character, or no token of bytes. */
function textOf(token: string): string | null {
  const bytes = [...token].map((letter) => BYTE_OF.get(letter));
  if (bytes.includes(undefined)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes as number[]));
  } catch {
    return null;
  }
}

export interface Fit {
  pre: PreTokenizer;
  /** Tokens that no text can become. */
  unreachable: number;
}

/** Each known pre-tokenizer, and how many of the tokens are out of its reach. */
export function fits(tokens: readonly string[]): { looked: number; fits: Fit[] } {
  const step = Math.max(1, Math.ceil(tokens.length / SAMPLE));
  const texts = tokens
    .filter((_, id) => id % step === 0)
    .map(textOf)
    .filter((text): text is string => text !== null && text.length > 1);
  const all = PRE_TOKENIZERS.map((pre) => {
    const patterns = pre.splits.map(compiled);
    return { pre, unreachable: texts.filter((text) => patterns.some((pattern) => cuts(pattern, text))).length };
  });
  return { looked: texts.length, fits: all };
}

/** JavaScript has no `(?i:…)` everywhere: the letters of English contractions are written out. */
const compiled = (pattern: string) =>
  new RegExp(
    pattern.replace(
      /\(\?i:([^)]*)\)/g,
      (_, inner: string) => `(?:${inner.replace(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`)})`,
    ),
    "gu",
  );

/** Whether isolating the matches of a pattern leaves more than one piece. */
function cuts(pattern: RegExp, text: string): boolean {
  for (const match of text.matchAll(pattern)) {
    if (match[0].length > 0 && match[0].length < text.length) return true;
  }
  return false;
}

/** The share of tokens out of reach from which a name is wrong, unless another name is hardly better. */
const WRONG = 0.002;
const FEWEST = 4;
const BETTER = 4;

export interface Judged {
  /** The name that fits; null where several do and none is the one that a load takes. */
  name: string;
  /** Whether the vocabulary contradicts the name that the file has. */
  wrong: boolean;
  unreachable: number;
  looked: number;
  best: number;
}

/** Compares the name that a load takes with all others. */
export function judge(tokens: readonly string[], taken: PreTokenizer | undefined): Judged {
  const { looked, fits: all } = fits(tokens);
  const least = all.reduce((best, fit) => (fit.unreachable < best.unreachable ? fit : best));
  const own = all.find(({ pre }) => pre === taken);
  const unreachable = own?.unreachable ?? looked;
  const most = Math.max(FEWEST, WRONG * looked);
  const wrong = own !== undefined && unreachable > most && unreachable > BETTER * least.unreachable;
  const better = own === undefined || wrong ? least.pre : own.pre;
  return { name: better.names[0]!, wrong, unreachable, looked, best: least.unreachable };
}
