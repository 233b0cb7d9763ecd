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

/** What an identity is of, as far as it says something to people. */
export type Facts = Readonly<Record<string, string | number>>;

/** Equal where the same line gets the same bytes. */
export const identityOf = async (model: Model, options: AnswerOptions): Promise<string> =>
  (await identified(model, options)).identity;

/** The identity, and what people may compare where two of them differ. */
export async function identified(
  model: Model,
  { name, defaultMaxTokens, version }: AnswerOptions,
): Promise<{ identity: string; facts: Facts }> {
  const { contextLength, kvCacheType, activations, activationMap, tokenizer, architecture, parameters } = model.info;
  const text = tokenizer ? await model.tokenizerInfo() : null;
  const facts = { contextLength, kvCacheType, activations, activationMap, tokenizer, architecture, parameters, text };
  const logits = await fingerprintOf(model);
  const all = JSON.stringify([version, name, defaultMaxTokens, logits, facts]);
  const identity = createHash("sha256").update(all).digest("hex").slice(0, 32);
  const rounded = activationMap === null ? activations : `${activations} and a map`;
  return {
    identity,
    facts: {
      version,
      model: name,
      weights: logits,
      "context length": contextLength,
      "KV type": kvCacheType,
      activations: rounded,
      "default max tokens": defaultMaxTokens,
    },
  };
}

/** What the ids of an answer are made of, at once: a hash by promise costs more than all else that a line takes. */
export const tokensOf =
  (identity: string) =>
  ({ index, text }: Line): string =>
    createHash("sha256").update(`${identity} ${index} ${text}`).digest("hex").slice(0, 24);
