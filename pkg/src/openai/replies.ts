/** Responses and chunks of both completions interfaces. */

import type { Finished, FinishReason, TokenLogprobs } from "../types/index.ts";

/** What every part of a response repeats. */
export interface Head {
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  fingerprint: string;
}

/** The text of a token id. */
export type TextOf = (id: number) => { text: string; bytes: number[] };

export interface ToolCallReply {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

/** Why an answer ended, in OpenAI's words. */
export type Reason = "stop" | "length" | "tool_calls";

/** The server stops an answer only where it has had its one call. */
const REASONS: Readonly<Record<FinishReason, Reason>> = { stop: "stop", length: "length", stopped: "stop" };

/** @param called whether the answer has calls; the last one of an answer that was cut may be a part of one */
export const reasonOf = (reason: FinishReason, called: boolean): Reason =>
  called && reason !== "length" ? "tool_calls" : REASONS[reason];

/** An answer, whole. */
export interface Choice {
  text: string;
  calls: ToolCallReply[];
  logprobs: TokenLogprobs[] | null;
  reason: Reason;
}

/** The ids of calls follow from the response's, so that a stream that is repeated repeats them. */
export const callId = (head: Head, index: number, call: number): string =>
  `call_${head.id.slice(head.id.indexOf("-") + 1)}${index}${call}`;

const common = ({ id, created, model, fingerprint }: Head, object: string) => ({
  id,
  object,
  created,
  model,
  system_fingerprint: fingerprint,
});

export const chatReply = (head: Head, choices: readonly Choice[], textOf: TextOf) => ({
  ...common(head, "chat.completion"),
  choices: choices.map(({ text, calls, logprobs, reason }, index) => ({
    index,
    message: {
      role: "assistant",
      content: calls.length > 0 && text === "" ? null : text,
      refusal: null,
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    },
    logprobs: logprobs && chatLogprobs(logprobs, textOf),
    finish_reason: reason,
  })),
});

export interface Delta {
  role?: "assistant";
  content?: string | null;
  tool_calls?: {
    index: number;
    id?: string;
    type?: "function";
    function: { name?: string; arguments: string };
  }[];
}

export const chatChunk = (
  head: Head,
  index: number,
  delta: Delta,
  { logprobs = null, reason = null }: { logprobs?: unknown; reason?: string | null } = {},
) => ({
  ...common(head, "chat.completion.chunk"),
  choices: [{ index, delta, logprobs, finish_reason: reason }],
});

export const completionReply = (
  head: Head,
  choices: readonly { text: string; logprobs: unknown; reason: string }[],
) => ({
  ...common(head, "text_completion"),
  choices: choices.map(({ text, logprobs, reason }, index) => ({ text, index, logprobs, finish_reason: reason })),
});

export const completionChunk = (
  head: Head,
  index: number,
  text: string,
  { logprobs = null, reason = null }: { logprobs?: unknown; reason?: string | null } = {},
) => ({
  ...common(head, "text_completion"),
  choices: [{ text, index, logprobs, finish_reason: reason }],
});

/** The last chunk of a stream that tells its counts. */
export const usageChunk = (head: Head, object: string, counts: object) => ({
  ...common(head, object),
  choices: [],
  ...counts,
});

/** JSON has no infinity. */
const finite = (logprob: number) => Math.max(logprob, -9999);

export const chatLogprobs = (logprobs: readonly TokenLogprobs[], textOf: TextOf) => {
  const one = ({ token, logprob }: { token: number; logprob: number }) => {
    const { text, bytes } = textOf(token);
    return { token: text, logprob: finite(logprob), bytes };
  };
  return { content: logprobs.map((entry) => ({ ...one(entry), top_logprobs: entry.top.map(one) })), refusal: null };
};

/** The lists of the older interface; `null` stands for the first token of a prompt, which nothing comes before. */
export class LogprobLists {
  readonly #textOf: TextOf;
  #offset = 0;

  constructor(textOf: TextOf) {
    this.#textOf = textOf;
  }

  /** @param first a token before the others */
  lists(logprobs: readonly TokenLogprobs[], first?: number) {
    const ids = [...(first === undefined ? [] : [first]), ...logprobs.map(({ token }) => token)];
    const tokens = ids.map((id) => this.#textOf(id).text);
    const none = first === undefined ? [] : [null];
    return {
      tokens,
      token_logprobs: [...none, ...logprobs.map(({ logprob }) => finite(logprob))],
      top_logprobs: [...none, ...logprobs.map((entry) => this.#top(entry))],
      text_offset: tokens.map((text) => {
        const at = this.#offset;
        this.#offset += text.length;
        return at;
      }),
    };
  }

  /** The likeliest tokens and the chosen one by their texts. Of two tokens with one text the likelier counts. */
  #top({ token, logprob, top }: TokenLogprobs): Record<string, number> {
    const named: Record<string, number> = {};
    for (const one of [...top, { token, logprob }]) {
      const { text } = this.#textOf(one.token);
      if (!Object.hasOwn(named, text)) named[text] = finite(one.logprob);
    }
    return named;
  }
}

/** Counts of all answers. The answers at an index that `n` divides have prompts of their own. */
export function usage(all: readonly Finished[], n: number) {
  const sum = (list: readonly Finished[], count: (one: Finished) => number) =>
    list.reduce((total, one) => total + count(one), 0);
  const prompts = all.filter((_, index) => index % n === 0);
  const prompt = sum(prompts, ({ promptTokens }) => promptTokens.length);
  const completion = sum(all, ({ tokens }) => tokens.length);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum(prompts, ({ timings }) => timings.cachedN), audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

/** The first answer's times, in llama-server's spelling. */
export function timings({ timings }: Finished) {
  const each = (ms: number, count: number) => (count > 0 ? ms / count : 0);
  return {
    cache_n: timings.cachedN,
    prompt_n: timings.promptN,
    prompt_ms: timings.promptMs,
    prompt_per_token_ms: each(timings.promptMs, timings.promptN),
    prompt_per_second: timings.promptPerSecond,
    predicted_n: timings.predictedN,
    predicted_ms: timings.predictedMs,
    predicted_per_token_ms: each(timings.predictedMs, timings.predictedN),
    predicted_per_second: timings.predictedPerSecond,
  };
}
