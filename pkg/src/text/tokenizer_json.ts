/** The parts of tokenizer.json and tokenizer_config.json that this room reads and writes. */

/** A part with a `type`: normalizer, pre-tokenizer, post-processor, decoder. */
export interface Part {
  type: string;
  [key: string]: unknown;
}

export interface AddedToken {
  id: number;
  content: string;
  special: boolean;
  normalized?: boolean;
  lstrip?: boolean;
  rstrip?: boolean;
  single_word?: boolean;
}

export interface Bpe extends Part {
  type: "BPE";
  vocab: Record<string, number>;
  /** "left right" or [left, right]. */
  merges: readonly (string | readonly [string, string])[];
  /** Not in the file format: the merges of a scored vocabulary, which `merges` then leaves out. */
  scored?: ScoredMerges;
  unk_token?: string | null;
  byte_fallback?: boolean;
  fuse_unk?: boolean;
  ignore_merges?: boolean;
}

/**
 * The merges of a vocabulary with scores, from the best on. Merge `i` makes token `ids[i]` of `tokens` out of its first
 * `cuts[i]` UTF-16 units and the rest. Merges of equal scores share a rank.
 */
export interface ScoredMerges {
  tokens: readonly string[];
  ids: Uint32Array;
  cuts: Uint16Array;
  ranks: Uint32Array;
}

/** The two tokens that a scored merge joins. */
export function mergedPair({ tokens, ids, cuts }: ScoredMerges, index: number): [left: string, right: string] {
  const token = tokens[ids[index]!]!;
  return [token.slice(0, cuts[index]), token.slice(cuts[index])];
}

export interface TokenizerJson {
  added_tokens: readonly AddedToken[];
  normalizer: Part | null;
  pre_tokenizer: Part | null;
  post_processor: Part | null;
  decoder: Part | null;
  model: Part;
}

/** Parts that a tokenizer.json may leave out. */
export const EMPTY = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };

export type TokenConfig = string | { content: string } | null;

export interface TokenizerConfig {
  bos_token?: TokenConfig;
  eos_token?: TokenConfig;
  unk_token?: TokenConfig;
  pad_token?: TokenConfig;
  /** Ends a turn where that is another token than the one that ends a text. */
  eot_token?: TokenConfig;
  chat_template?: string | readonly { name: string; template: string }[] | null;
  [key: string]: unknown;
}

/** The text of a token that a config names, as a string or as an object. */
export function tokenContent(token: unknown): string | null {
  if (typeof token === "string") return token;
  const content = (token as { content?: unknown } | null | undefined)?.content;
  return typeof content === "string" ? content : null;
}
