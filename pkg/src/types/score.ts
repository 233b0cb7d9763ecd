/** Options and results of what a model computes without generating: ids, logits, embeddings, perplexity. */

import type { AdapterUse } from "./adapters.ts";
import type { AbortSignal } from "./web.ts";

export interface TokenizeOptions {
  /** Adds what the tokenizer adds to a text (BOS). @default true */
  addSpecial?: boolean | undefined;
}

export interface DetokenizeOptions {
  /** Keeps special tokens in the text. @default true */
  special?: boolean | undefined;
}

export interface LogitsOptions {
  /** Returns one row for every id instead of one for the last. @default false */
  all?: boolean | undefined;
  /** The adapters to compute with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the computation; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface EmbedOptions {
  /** How the states of a text's tokens become one: their mean, or the last one. @default "mean" */
  pooling?: "mean" | "last" | undefined;
  /** Scales every row to length 1. @default true */
  normalize?: boolean | undefined;
  /** The adapters to compute with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the computation; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface PerplexityOptions {
  /** The length of a window. @default 512 tokens */
  window?: number | undefined;
  /** The adapters to compute with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the computation; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface Perplexity {
  perplexity: number;
  /** Mean negative log-likelihood, in nats per token. */
  nll: number;
  /** Tokens that were predicted. */
  tokens: number;
}
