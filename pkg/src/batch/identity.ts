/** What answers depend on beside their lines: the model with its tokenizer and template, and the options that change answers. */

import { createHash } from "node:crypto";
import { fingerprintOf, type Line } from "../server/serving.ts";
import type { Model } from "../types/index.ts";

export interface AnswerOptions {
  /** The model's name, as answers have it. */
  name: string;
  defaultMaxTokens: number;
  /** Of the package: another one may write other texts. */
  version: string;
}

/** Equal where the same line gets the same bytes. */
export async function identityOf(model: Model, { name, defaultMaxTokens, version }: AnswerOptions): Promise<string> {
  const { contextLength, kvCacheType, activations, activationMap, tokenizer, architecture, parameters } = model.info;
  const text = tokenizer ? await model.tokenizerInfo() : null;
  const facts = { contextLength, kvCacheType, activations, activationMap, tokenizer, architecture, parameters, text };
  const logits = await fingerprintOf(model);
  const all = JSON.stringify([version, name, defaultMaxTokens, logits, facts]);
  return createHash("sha256").update(all).digest("hex").slice(0, 32);
}

/** What the ids of an answer are made of, at once: a hash by promise costs more than all else that a line takes. */
export const tokensOf =
  (identity: string) =>
  ({ index, text }: Line): string =>
    createHash("sha256").update(`${identity} ${index} ${text}`).digest("hex").slice(0, 24);
