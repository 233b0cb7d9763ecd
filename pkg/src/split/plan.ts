/** Which layers of a model go to which memory. */

import type { MemoryNeeds } from "../types/index.ts";

/** What one WebAssembly memory has of a model. */
export interface Part {
  /** From one layer to before another; absent where it has all. The first part has the embedding and the head as well. */
  layers?: readonly [number, number];
  needed: MemoryNeeds;
}

/** What some layers take. */
export type Needs = (layers: readonly [number, number]) => MemoryNeeds;

/** Tries for limits that make parts alike. */
const ROUNDS = 6;

/** As few parts as there can be, none of which takes more than `most` bytes, of about the same size. Null where one layer is too large. */
export function divide(layers: number, most: number, needs: Needs): Part[] | null {
  let best = fill(layers, most, needs);
  const { total } = needs([0, layers]);
  let [low, high] = [total / (best?.length ?? 1), most];
  for (let round = 0; best && round < ROUNDS; round++) {
    const middle = (low + high) / 2;
    const parts = fill(layers, middle, needs);
    if (parts?.length === best.length) [best, high] = [parts, middle];
    else low = middle;
  }
  return best;
}

/** Gives each part as many layers as it can take. */
function fill(count: number, most: number, needs: Needs): Part[] | null {
  const parts: Part[] = [];
  for (let from = 0; from < count; ) {
    // By bisection: the layers up to `low` fit, those up to `high` do not.
    let [low, high] = [from, count + 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (needs([from, middle]).total <= most) low = middle;
      else high = middle;
    }
    if (low === from) return null;
    const layers = [from, low] as const;
    parts.push({ layers, needed: needs(layers) });
    from = low;
  }
  return parts;
}

/** A question whether a model fits, as `host/fit.ts` answers it. */
interface Question<Settings> {
  settings: Settings;
  needed: MemoryNeeds;
  room: { available: number; reason: string };
  trainedContext(): number;
  needs(settings: Settings): MemoryNeeds;
}

interface Answer {
  ok: boolean;
  suggestion?: object;
}

/** What a model that does not fit into one memory has in several. */
interface Several<Settings> {
  layers: number;
  /** Bytes that one memory has for it. */
  each: number;
  /** Bytes that there are for it on the whole; Infinity where nothing tells. */
  free: number;
  needs(settings: Settings, layers: readonly [number, number]): MemoryNeeds;
}

/** Memories of one model, at most. */
const MAX_PARTS = 8;

/** Asks whether the model fits into several memories. Undefined where it does not, and the answer for one memory is of more use. */
export function widen<Settings, Verdict extends Answer>(
  question: Question<Settings>,
  one: Verdict,
  fit: (question: Question<Settings>) => Verdict,
  { layers, each, free, needs }: Several<Settings>,
): { verdict: Verdict & { parts: number }; parts: Part[] } | undefined {
  const divided = (settings: Settings) => divide(layers, each, (some) => needs(settings, some));
  const parts = divided(question.settings);
  if (!parts) return undefined;
  const available = Math.min(free, MAX_PARTS * each);
  const owner = available === free ? "there are" : "WebAssembly has at most";
  const verdict = fit({
    ...question,
    needed: sum(parts),
    room: { available, reason: `${owner} ${available} bytes for it` },
    needs: (settings) => sum(divided(settings) ?? [{ needed: { ...question.needed, total: Infinity } }]),
  });
  if (!verdict.ok && one.suggestion) return undefined;
  return { verdict: { ...verdict, parts: parts.length }, parts };
}

/** What all parts take. */
export function sum(parts: readonly Part[]): MemoryNeeds {
  const all = { weights: 0, kv: 0, states: 0, scratch: 0, total: 0 };
  for (const { needed } of parts) {
    for (const name of Object.keys(all) as (keyof MemoryNeeds)[]) all[name] += needed[name];
  }
  return all;
}
