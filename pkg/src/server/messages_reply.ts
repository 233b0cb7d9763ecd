/** What Anthropic's interface answers: a message, or the events of one. */

import { type Ask, contextFull } from "../openai/ask.ts";
import type { ApiError } from "../openai/errors.ts";
import { type Choice, callId, type Head, type Reason } from "../openai/replies.ts";
import type { Finished } from "../types/index.ts";
import type { Indexed } from "./answers.ts";
import type { EventIds } from "./resume.ts";
import type { Sent } from "./sse.ts";

const counts = ({ promptTokens, tokens, timings }: Finished) => {
  const cached = Math.min(timings.cachedN, promptTokens.length);
  return {
    input_tokens: promptTokens.length - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: tokens.length,
  };
};

function stopOf(ask: Ask, reason: Reason, finished: Finished) {
  const { stopText } = finished;
  if (reason === "tool_calls") return { stop_reason: "tool_use", stop_sequence: null };
  if (reason === "length") {
    const stop_reason = contextFull(ask, finished) ? "model_context_window_exceeded" : "max_tokens";
    return { stop_reason, stop_sequence: null };
  }
  return stopText === undefined
    ? { stop_reason: "end_turn", stop_sequence: null }
    : { stop_reason: "stop_sequence", stop_sequence: stopText };
}

const message = ({ id, model }: Head) => ({ id, type: "message", role: "assistant", model });

export const messageReply = (ask: Ask, head: Head, { text, calls, reason }: Choice, finished: Finished) => ({
  ...message(head),
  content: [
    ...(text === "" && calls.length > 0 ? [] : [{ type: "text", text }]),
    ...calls.map(({ id, function: { name, arguments: args } }) => ({
      type: "tool_use",
      id,
      name,
      input: parsed(args),
    })),
  ],
  ...stopOf(ask, reason, finished),
  usage: counts(finished),
});

/** An answer that was cut off leaves arguments that are no JSON. */
function parsed(args: string): unknown {
  try {
    return JSON.parse(args);
  } catch {
    return {};
  }
}

export async function* messageEvents(
  ask: Ask,
  parts: AsyncIterable<Indexed>,
  head: Head,
  ids: EventIds,
  inputTokens: number,
): AsyncGenerator<Sent, undefined> {
  const event = (data: { type: string }): Sent[] => {
    const next = ids.next(0);
    return next ? [{ ...next, event: data.type, data }] : [];
  };
  const block = new Block();
  const usage = {
    input_tokens: inputTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    output_tokens: 0,
  };
  const started = { ...message(head), content: [], stop_reason: null, stop_sequence: null, usage };
  let begun = false;
  for await (const { part } of parts) {
    if (!begun) yield* event({ type: "message_start", message: started } as { type: string });
    begun = true;
    if (part.type === "text" && part.text !== "") {
      for (const one of block.text(part.text)) yield* event(one);
    } else if (part.type === "call") {
      const id = part.id ?? callId(head, 0, part.call);
      for (const one of block.begin({ type: "tool_use", id, name: part.name, input: {} })) yield* event(one);
    } else if (part.type === "arguments") {
      yield* event(block.delta({ type: "input_json_delta", partial_json: part.text }));
    } else if (part.type === "end") {
      for (const one of block.end()) yield* event(one);
      const delta = stopOf(ask, part.reason, part.finished);
      yield* event({ type: "message_delta", delta, usage: counts(part.finished) } as { type: string });
      yield* event({ type: "message_stop" });
    }
  }
}

/** The block that is open, of those that a message consists of. */
class Block {
  #index = -1;
  #open: string | null = null;

  text(text: string): { type: string }[] {
    const begun = this.#open === "text" ? [] : this.begin({ type: "text", text: "" });
    return [...begun, this.delta({ type: "text_delta", text })];
  }

  begin(content_block: { type: string } & Record<string, unknown>): { type: string }[] {
    const ended = this.end();
    this.#index++;
    this.#open = content_block.type;
    return [...ended, { type: "content_block_start", index: this.#index, content_block } as { type: string }];
  }

  delta(delta: object): { type: string } {
    return { type: "content_block_delta", index: this.#index, delta } as { type: string };
  }

  end(): { type: string }[] {
    if (this.#open === null) return [];
    this.#open = null;
    return [{ type: "content_block_stop", index: this.#index } as { type: string }];
  }
}

const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

export function messageError({ status, message }: ApiError) {
  const type = TYPES[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
  return { type: "error", error: { type, message } };
}
