/** What a measurement of settings tells. */

import type { ActivationMap, Activations, Head, KvCacheType } from "../types/index.ts";
import type { Accuracy, ScoredTask } from "./tasks.ts";

/** One way to load the model. */
export interface Setting {
  kv: KvCacheType;
  activations: Activations | ActivationMap;
  head: Head;
}

export interface QualityRow extends Setting {
  perplexity: number;
  /** 95 % confidence, from the spread of single tokens; null where one alone was predicted. */
  interval: [number, number] | null;
  /** Mean negative log-likelihood, in nats per token. */
  nll: number;
  tokens: number;
  /**
   * Mean divergence from the reference, in nats; null where the vocabularies differ. Of a slice, over the tokens that it kept, on the
   * text's sentences that it has all tokens of.
   */
  kl: number | null;
  /** Share of tokens whose likeliest successor is the reference's; of a slice, on the same sentences. */
  sameWinner: number | null;
  promptPerSecond: number;
  predictedPerSecond: number;
  /** The model's weight files, and its weights as they are packed with this setting, in bytes. */
  fileBytes: number;
  weightBytes: number;
  /** Weights, KV cache and scratch, in bytes. */
  memory: number;
  /** Whether no other setting is as good in perplexity, speed and memory, and better in one. */
  pareto: boolean;
  /** What the questions gave, with the scores of each choice. */
  tasks?: Accuracy & { lines: ScoredTask[] };
}

/** A row before its files were looked at. */
export type MeasuredRow = Omit<QualityRow, "fileBytes">;

export interface QualityReport {
  /** What the rows are compared with. */
  reference: { model: "itself" | "another"; perplexity: number };
  window: number;
  rows: QualityRow[];
}

export type MeasuredReport = Omit<QualityReport, "rows"> & { rows: MeasuredRow[] };
