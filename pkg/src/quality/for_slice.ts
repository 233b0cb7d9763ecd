/** Options that name tokens by id, for a model whose vocabulary was cut. */

import type { SamplingOptions } from "../types/index.ts";

export type TokenOptions = Pick<SamplingOptions, "logitBias" | "bannedSequences">;

export function forSlice({ logitBias, bannedSequences }: TokenOptions, ids: ArrayLike<number>): TokenOptions {
  const place = new Map(Array.from(ids, (id, at) => [id, at] as const));
  const options: TokenOptions = {};
  if (logitBias) {
    const biases = Object.entries(logitBias).flatMap(([id, bias]) => {
      const at = place.get(Number(id));
      return at === undefined ? [] : [[at, bias] as const];
    });
    options.logitBias = Object.fromEntries(biases);
  }
  if (bannedSequences) {
    options.bannedSequences = bannedSequences.flatMap((sequence): (string | readonly number[])[] => {
      if (typeof sequence === "string") return [sequence];
      const own = sequence.flatMap((id) => place.get(id) ?? []);
      return own.length === sequence.length ? [own] : [];
    });
  }
  return options;
}
