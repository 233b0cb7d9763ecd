/** Requests to the engine, and the events that its steps report. */

/** What a step reports of one request. */
export type EngineEvent =
  /** The prompt is read; `cached` of the conversation's tokens did not have to be computed. */
  | { type: "prompt"; request: number; tokens: number; cached: number }
  | { type: "token"; request: number; token: number }
  /** Log-probabilities of the `token` event that comes next, or of the next token of a scored prompt; `top` are those of `ids`. */
  | { type: "logprobs"; request: number; chosen: number; ids: Uint32Array; top: Float32Array }
  /** The request waits for `supply`. */
  | { type: "choose"; request: number; logits: Float32Array }
  | { type: "logits"; request: number; position: number; logits: Float32Array }
  | { type: "scored"; request: number; nll: number; tokens: number }
  | { type: "embedded"; request: number; embedding: Float32Array }
  | { type: "finished"; request: number; reason: "stop" | "length" }
  | { type: "failed"; request: number; error: unknown };

export type EngineWork =
  | {
      type: "generate";
      /** From `flat`; without it the most likely token is taken. */
      sampling?: Float64Array;
      maxTokens?: number;
      end: number[];
      /** When the context is full: 0 ends it, 1 fails, 2 shifts. */
      full: number;
      hook?: boolean;
    }
  | { type: "logits"; all: boolean }
  /** The negative log-likelihood of all; or with `logprobs`, those of each token but the first, and of this many of the likeliest. */
  | { type: "score"; logprobs?: number }
  /** The mean over all tokens, or the state of the last. */
  | { type: "embed"; mean: boolean };
