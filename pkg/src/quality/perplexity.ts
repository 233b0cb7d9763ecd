/** How well a model predicts tokens. */

import { partsOf } from "../text/parts.ts";
import { EngineError } from "../types/errors.ts";
import type { Model } from "../types/index.ts";
import type { Gguf } from "./gguf.ts";

/** Tokens that are predicted from each other. */
export const WINDOW = 512;

/** The context of such a window, in a model that may hold less. */
export const contextOf = (gguf: Gguf): number => Math.min(WINDOW, Number(gguf.own("context_length") ?? WINDOW));

/** The first tokens of a text, which may be longer than what is encoded at once. */
export async function idsOf(model: Pick<Model, "tokenize">, text: string, most = Infinity): Promise<number[]> {
  const lists: number[][] = [];
  let count = 0;
  for (const part of partsOf(text)) {
    if (count >= most) break;
    const ids = await model.tokenize(part, { addSpecial: false });
    count += ids.length;
    lists.push(ids);
  }
  return lists.flat().slice(0, most);
}

/** The mean negative log-likelihood of tokens, in windows. */
export async function meanLoss(model: Model, ids: readonly number[], signal?: AbortSignal): Promise<number> {
  const size = Math.min(WINDOW, model.info.contextLength);
  let [sum, count] = [0, 0];
  for (let at = 0; at < ids.length; at += size) {
    const window = ids.slice(at, at + size);
    if (window.length < 2) continue;
    const scored = await model.promptLogprobs(window, { signal });
    for (const { logprob } of scored) sum -= logprob;
    count += scored.length;
  }
  return sum / count;
}

/** Refuses texts that are too short to measure with. */
export function enoughTokens(ids: number[], tool: string, option: string): number[] {
  if (ids.length >= 2) return ids;
  const expected = "two texts of some words";
  throw new EngineError("BadValue", `${tool}: the calibration data have too few tokens: expected ${expected}`, {
    option,
    expected,
  });
}
