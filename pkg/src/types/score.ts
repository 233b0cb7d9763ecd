/** Options and results of what a model computes without generating: ids, logits, embeddings, perplexity. */

import type { AdapterUse } from "./adapters.ts";
import type { AbortSignal } from "./web.ts";

export interface DetokenizeOptions {
  /** Keeps special tokens in the text. @default true */
  special?: boolean | undefined;
}

/** A token of the vocabulary. */
export interface TokenBytes {
  /** What it adds to a text: part of a character, or several. */
  bytes: Uint8Array;
  /** Whether it is a special token, which answers leave out of their text. */
  special: boolean;
}

/** What a model's files say of its texts. */
export interface TokenizerInfo {
  /** Special tokens by the names that chat templates know: `bos_token`, `eos_token` and their like. */
  specialTokens: Readonly<Record<string, string>>;
  /** The text of the chat template; null where the model has none. */
  template: string | null;
}

export interface PromptLogprobsOptions {
  /** Reports this many of the most likely tokens in each place. At most 100. @default 0 tokens */
  top?: number | undefined;
  /** The adapters to compute with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the computation; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface LogitsOptions {
  /** Returns one row for every id instead of one for the last. @default false */
  all?: boolean | undefined;
  /** The adapters to compute with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the computation; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** How the states of a text's tokens become one: their mean, or the last one. */
export type Pooling = "mean" | "last";

export interface EmbedOptions {
  /** How the states of a text's tokens become one. @default the one that the model's GGUF names, else the mean */
  pooling?: Pooling | undefined;
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
