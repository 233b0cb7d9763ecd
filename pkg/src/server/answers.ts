/** The answers to a request as they come, from one model, for every interface alike. */

import { CallReader, leftBehindCall } from "../integration/call_reader.ts";
import type { Ask, ChatAsk } from "../openai/ask.ts";
import { type Reason, reasonOf } from "../openai/replies.ts";
import { seedAt } from "../openai/sampling.ts";
import type {
  AdapterUse,
  Finished,
  GenerateOptions,
  Generation,
  Model,
  Prompt,
  TokenLogprobs,
} from "../types/index.ts";
import { Channel } from "./channel.ts";
import { inLanes } from "./lanes.ts";
import type { Ready } from "./slot.ts";

/** What becomes known of an answer. */
export type Part =
  | { type: "text"; text: string; logprobs?: TokenLogprobs[] }
  | { type: "call"; call: number; id: string | undefined; name: string }
  | { type: "arguments"; call: number; text: string }
  | { type: "end"; finished: Finished; reason: Reason };

export interface Indexed {
  index: number;
  part: Part;
}

export interface AnswerContext extends Ready {
  adapters: AdapterUse[];
  signal: AbortSignal;
  /** Hears of each answer that ended. */
  onEnd?(finished: Finished): void;
}

/** The answer at an index is number `index % n` to prompt `⌊index / n⌋`. */
export async function* answers(ask: Ask, context: AnswerContext): AsyncGenerator<Indexed, undefined> {
  const channel = new Channel<Indexed>();
  const abort = new AbortController();
  const signal = AbortSignal.any([context.signal, abort.signal]);
  const put = async (index: number) => {
    for await (const part of answer(ask, index, { ...context, signal })) await channel.put({ index, part });
  };
  const begun: Promise<void>[] = [];
  const one = (index: number) => {
    const answered = put(index);
    begun.push(answered);
    return answered;
  };
  inLanes(ask.prompts.length * ask.n, one).then(
    () => channel.end(),
    (error) => channel.fail(error),
  );
  let whole = false;
  try {
    yield* channel;
    whole = true;
  } finally {
    // The error that an abort without need makes costs more than all else that stands here.
    if (!whole) abort.abort();
    channel.leave();
    // What an answer that was cut off has computed is counted when its step has ended, before the request is.
    if (!whole) await Promise.allSettled(begun);
  }
}

/** One answer. */
async function* answer(ask: Ask, index: number, context: AnswerContext): AsyncGenerator<Part, undefined> {
  const prompt = ask.prompts[Math.floor(index / ask.n)]!;
  const { adapters, signal } = context;
  const { seed } = ask.options;
  signal.throwIfAborted();
  const generation = begin(context.model, ask, prompt, {
    ...(seed === undefined ? {} : { seed: seedAt(seed, index % ask.n) }),
    ...(adapters.length > 0 ? { adapters } : {}),
  });
  // A signal of the generation's would reject it, and what it has computed would count for nothing.
  const stop = () => generation.stop();
  signal.addEventListener("abort", stop);
  try {
    yield* partsOf(generation, ask, prompt, context);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

async function* partsOf(
  generation: Generation,
  ask: Ask,
  prompt: Prompt | ChatAsk,
  context: AnswerContext,
): AsyncGenerator<Part, undefined> {
  const { signal } = context;
  const ended = (finished: Finished) => {
    context.onEnd?.(finished);
    signal.throwIfAborted();
  };
  const { tools = [] } = isChat(prompt) ? prompt : {};
  const calls = ask.calls ? new CallReader(tools, context.tokens) : null;
  if (!ask.stream && !calls) {
    // Nobody waits for its pieces, each of which would cost as much as a small step of the engine.
    const finished = await generation.finished;
    const { text, logprobs } = finished;
    ended(finished);
    yield { type: "text", text, ...(logprobs ? { logprobs } : {}) };
    yield { type: "end", finished, reason: reasonOf(finished.finishReason, false) };
    return;
  }
  let read = 0;
  for await (const { text, tokens, logprobs } of generation) {
    read += tokens.length;
    if (calls) {
      yield* await calls.read(text, tokens);
      // The log-probabilities of a call stand by themselves.
      if (logprobs) yield { type: "text", text: "", logprobs };
    } else yield { type: "text", text, ...(logprobs ? { logprobs } : {}) };
    if (ask.oneCall && calls?.between) break;
  }
  const whole = await generation.finished;
  const finished = ask.oneCall && calls?.between ? leftBehindCall(whole, read) : whole;
  ended(finished);
  if (calls) yield* calls.end();
  yield { type: "end", finished, reason: reasonOf(finished.finishReason, calls?.found ?? false) };
}

export const isChat = (prompt: Prompt | ChatAsk): prompt is ChatAsk =>
  typeof prompt === "object" && "messages" in prompt;

/** Begins an answer to one prompt. */
export function begin(model: Model, ask: Ask, prompt: Prompt | ChatAsk, given: GenerateOptions): Generation {
  const options: GenerateOptions = { ...ask.options, ...given };
  if (!isChat(prompt)) return model.generate(prompt, options);
  const { messages, ...more } = prompt;
  return model.chat(messages, { ...options, ...more, ...(ask.calls ? { keepSpecialTokens: true } : {}) });
}
