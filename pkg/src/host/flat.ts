/** Encodes sampling options for the engine: one list of numbers, with ids instead of texts. */

import { samplerNumbers } from "../options/routes.ts";
import { samplers as links } from "../options/samplers.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { SamplingOptions } from "../types/index.ts";
import type { Text } from "./text.ts";

/** The breakers of llama.cpp. */
const BREAKERS = ["\n", ":", '"', "*"];

export function flat(options: SamplingOptions & { seed: number }, text: Text): Float64Array {
  const { seed, logitBias = {}, bannedSequences = [], dryMultiplier = 0, samplers } = options;
  const bias = Object.entries(logitBias);
  const banned = bannedSequences.flatMap((one) => (typeof one === "string" ? spellings(one, text.tokenizer) : [one]));
  // The default needs a tokenizer: without one, no id is known to be a breaker.
  const { dryBreakers = text.tokenizerOrNull ? BREAKERS : [] } = options;
  const breakers = dryMultiplier > 0 && dryBreakers.length > 0 ? containing(dryBreakers, text.tokenizer) : [];
  return Float64Array.from([
    ...samplerNumbers.map((name) => Number(options[name] ?? Number.NaN)),
    Math.floor(seed / 2 ** 32),
    seed >>> 0,
    bias.length,
    ...bias.flatMap(([id, bias]) => [Number(id), bias]),
    banned.length,
    ...banned.flatMap((ids) => [ids.length, ...ids]),
    breakers.length,
    ...breakers,
    ...(samplers ? [samplers.length, ...samplers.map((link) => links.indexOf(link))] : []),
  ]);
}

/** The ids of a text at the beginning, after a space and within a line. */
function spellings(text: string, tokenizer: Tokenizer): number[][] {
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: false });
  const line = encode("\n");
  const within = encode(`\n${text}`);
  const all = [encode(text), encode(` ${text}`)];
  if (line.every((id, i) => within[i] === id)) all.push(within.slice(line.length));
  const different = new Map(all.filter((ids) => ids.length > 0).map((ids) => [ids.join(), ids]));
  return [...different.values()];
}

const known = new WeakMap<Tokenizer, Map<string, number[]>>();

/** The ids whose text contains one of these, in rising order. They are looked up once for each list of texts. */
function containing(texts: readonly string[], tokenizer: Tokenizer): number[] {
  const lists = known.get(tokenizer) ?? new Map<string, number[]>();
  known.set(tokenizer, lists);
  const key = JSON.stringify(texts);
  let found = lists.get(key);
  if (!found) {
    const decoder = new TextDecoder();
    const has = (id: number) => {
      const text = decoder.decode(tokenizer.bytes(id, true));
      return texts.some((one) => text.includes(one));
    };
    found = Array.from({ length: tokenizer.vocab }, (_, id) => id).filter(has);
    lists.set(key, found);
  }
  return found;
}
