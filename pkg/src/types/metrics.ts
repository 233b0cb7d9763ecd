/** What a model has counted and timed since its load. */

/** Names that dashboards know: ternlight's own, llama-server's or vLLM's. */
export type MetricsDialect = "ternlight" | "llama" | "vllm";

/** Prometheus' text format 0.0.4, or OpenMetrics 1.0. */
export type MetricsFormat = "prometheus" | "openmetrics";

export interface MetricsOptions {
  /** How the text is written. @default "prometheus" */
  format?: MetricsFormat | undefined;
  /** Whose names it has. @default "ternlight" */
  dialect?: MetricsDialect | undefined;
}

/** How often a value fell between two bounds. */
export interface Histogram {
  /** Upper bounds, each included, in rising order. */
  readonly bounds: readonly number[];
  /** One count for each bound, and one for what is above the last. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/**
 * Seconds, unless a name says tokens. `firstToken` and `request` count from the call, `queue` is the wait for a place in a batch, `prefill`
 * the time from there to the first token, `decode` from the first token to the last, `gap` between two tokens, `perToken` the mean gap of
 * an answer, `step` a batch.
 */
export type HistogramName =
  | "firstToken"
  | "gap"
  | "perToken"
  | "queue"
  | "prefill"
  | "decode"
  | "request"
  | "step"
  | "stepTokens"
  | "promptTokens"
  | "generatedTokens";

/** How a request ended. `refused` is one for which there was no place, `aborted` one whose signal ended it. */
export type RequestOutcome = "stop" | "length" | "stopped" | "done" | "aborted" | "refused" | "error";

export interface Statistics {
  /** Requests that have ended. */
  requests: { call: string; outcome: RequestOutcome; count: number }[];
  /** Requests that failed or were refused, by the codes of their errors. */
  errors: Readonly<Record<string, number>>;
  /** Prompt tokens that were computed. */
  promptTokens: number;
  /** Tokens before answers that did not need to be. */
  cachedTokens: number;
  generatedTokens: number;
  /** Requests in all batches together. */
  batchedRequests: number;
  /** Tokens of the longest conversation. */
  longestTokens: number;
  /** Requests under way that use an adapter, by its name. */
  adapters: Readonly<Record<string, number>>;
  histograms: Readonly<Record<HistogramName, Histogram>>;
}
