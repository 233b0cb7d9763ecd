/** Which tokens of a vocabulary stay, so that any text still encodes and texts of the kept tokens encode as before. */

import { BYTE, NORMAL, UNUSED } from "../text/from_gguf.ts";
import { EngineError } from "../types/errors.ts";
import type { Gguf } from "./gguf.ts";

export interface Vocabulary {
  kind: "gpt2" | "llama";
  tokens: readonly string[];
  types: Float64Array | null;
  scores: Float64Array | null;
  merges: readonly string[] | null;
}

export function vocabularyOf(gguf: Gguf): Vocabulary {
  const kind = gguf.get("tokenizer.ggml.model");
  const tokens = gguf.strings("tokenizer.ggml.tokens");
  if ((kind !== "gpt2" && kind !== "llama") || !tokens) {
    throw new EngineError(
      "MissingTokenizer",
      `slice: a GGUF with a tokenizer of kind gpt2 or llama is needed, not ${kind ?? "none"}`,
      {
        key: "tokenizer.ggml.model",
        expected: "gpt2 or llama",
        found: String(kind),
      },
    );
  }
  return {
    kind,
    tokens,
    types: gguf.numbers("tokenizer.ggml.token_type"),
    scores: gguf.numbers("tokenizer.ggml.scores"),
    merges: gguf.strings("tokenizer.ggml.merges"),
  };
}

/** Splits a merge as GGUF spells it: at its space, which no part begins with. */
export function partsOf(merge: string): [string, string] {
  const at = merge.indexOf(" ", 1);
  return [merge.slice(0, at), merge.slice(at + 1)];
}

/** How tokens are put together of others, by the vocabulary's own rule. */
export class Merging {
  readonly #vocabulary: Vocabulary;
  readonly #ids = new Map<string, number>();
  readonly #ranks = new Map<string, number>();

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    const { tokens, types, merges } = vocabulary;
    for (const [id, token] of tokens.entries()) {
      if (!types || types[id] === NORMAL || types[id] === 0) this.#ids.set(token, id);
    }
    for (const [rank, merge] of (merges ?? []).entries()) if (!this.#ranks.has(merge)) this.#ranks.set(merge, rank);
  }

  /** The lower, the earlier it is merged; undefined for a pair that is not. */
  #rank(left: string, right: string): number | undefined {
    const { kind, scores } = this.#vocabulary;
    if (kind === "gpt2") return this.#ranks.get(`${left} ${right}`);
    const id = this.#ids.get(left + right);
    return id === undefined ? undefined : -(scores?.[id] ?? 0);
  }

  /** A token and all tokens that merging makes on its way. */
  way(id: number): Set<number> {
    const parts = [...this.#vocabulary.tokens[id]!];
    const found = new Set([id]);
    const note = (part: string) => {
      const known = this.#ids.get(part);
      if (known !== undefined) found.add(known);
    };
    for (const part of parts) note(part);
    while (parts.length > 1) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.#rank(parts[i]!, parts[i + 1]!);
        if (rank !== undefined && rank < best) [best, at] = [rank, i];
      }
      if (at < 0) break;
      parts.splice(at, 2, parts[at]! + parts[at + 1]!);
      note(parts[at]!);
    }
    return found;
  }
}

/** Letters that byte-level vocabularies spell bytes with: one token each. */
const isByteToken = ({ kind, types }: Vocabulary, token: string, id: number): boolean =>
  kind === "gpt2" ? [...token].length === 1 && (!types || types[id] === NORMAL) : types?.[id] === BYTE;

/** What every slice keeps: special tokens, bytes, and what the user or the tokenizer has added. */
export function always(vocabulary: Vocabulary): Set<number> {
  const { tokens, types, kind } = vocabulary;
  const kept = new Set<number>();
  for (const [id, token] of tokens.entries()) {
    const type = types?.[id] ?? NORMAL;
    const added = type !== NORMAL && type !== UNUSED && type !== 0;
    if (added || isByteToken(vocabulary, token, id)) kept.add(id);
  }
  // Without types, special tokens are those that the metadata names: they come by `named`.
  if (kind === "llama" && ![...kept].some((id) => types?.[id] === BYTE)) {
    const reason = "slice: the vocabulary has no byte tokens, so that a text outside of it would not encode";
    throw new EngineError("UnsupportedSetting", reason, {
      key: "tokenizer.ggml.token_type",
      expected: "byte tokens (6)",
    });
  }
  return kept;
}

export interface Chosen {
  /** The ids that stay, in their order. */
  ids: Uint32Array;
  /** Of these, tokens that stay whatever is asked for. */
  always: number;
}

/**
 * Chooses `keep` tokens: those that must stay, then those that the text needs most with all on their way, then the vocabulary's first.
 *
 * @param named ids that the metadata refers to
 */
export function choose(
  vocabulary: Vocabulary,
  counts: ReadonlyMap<number, number>,
  keep: number,
  named: Iterable<number>,
): Chosen {
  const kept = new Set([...always(vocabulary), ...named]);
  const least = kept.size;
  if (keep < least || keep > vocabulary.tokens.length) {
    const expected = `from ${least} (special tokens and bytes) to ${vocabulary.tokens.length}`;
    throw new EngineError("InvalidArgument", `slice: keep: expected ${expected}, got ${keep}`, {
      option: "keep",
      expected,
      found: String(keep),
    });
  }
  const { tokens, types } = vocabulary;
  const merging = new Merging(vocabulary);
  const wanted = [...counts].sort(([a, x], [b, y]) => y - x || a - b).map(([id]) => id);
  const unused = (id: number) => types?.[id] === UNUSED;
  const all = [...tokens.keys()];
  const order = [...wanted, ...all.filter((id) => !unused(id)), ...all.filter(unused)];
  // A token whose way does not fit leaves its place to one whose way does, and may fit when others have made a part of its way.
  for (let size = -1; size !== kept.size && kept.size < keep; ) {
    size = kept.size;
    for (const id of order) {
      if (kept.size === keep) break;
      if (kept.has(id)) continue;
      const way = [...merging.way(id)].filter((one) => !kept.has(one));
      if (kept.size + way.length <= keep) for (const one of way) kept.add(one);
    }
  }
  return { ids: Uint32Array.from([...kept].sort((a, b) => a - b)), always: least };
}

/** The tokens given, with those that must stay and all on the way of each. */
export function closure(vocabulary: Vocabulary, ids: Iterable<number>, named: Iterable<number>): Chosen {
  const kept = new Set([...always(vocabulary), ...named]);
  const least = kept.size;
  const merging = new Merging(vocabulary);
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0 || id >= vocabulary.tokens.length) {
      const expected = `ids below ${vocabulary.tokens.length}`;
      throw new EngineError("BadValue", `slice: tokens: expected ${expected}, got ${id}`, {
        option: "tokens",
        expected,
        found: String(id),
      });
    }
    for (const one of merging.way(id)) kept.add(one);
  }
  return { ids: Uint32Array.from([...kept].sort((a, b) => a - b)), always: least };
}

/** The merges whose parts and result stay. */
export function keptMerges(merges: readonly string[], tokens: ReadonlySet<string>): string[] {
  return merges.filter((merge) => {
    const [left, right] = partsOf(merge);
    return tokens.has(left) && tokens.has(right) && tokens.has(left + right);
  });
}
