/** The events of a chat completion's stream. */

import type { TokenTexts } from "../integration/tokens.ts";
import type { Ask } from "../openai/ask.ts";
import {
  callId,
  chatChunk,
  chatLogprobs,
  type Delta,
  type Head,
  timings,
  usage,
  usageChunk,
} from "../openai/replies.ts";
import type { Finished } from "../types/index.ts";
import type { Indexed, Part } from "./answers.ts";
import type { EventIds } from "./resume.ts";
import type { Sent } from "./sse.ts";

export interface StreamContext {
  head: Head;
  ids: EventIds;
  tokens: TokenTexts;
}

export async function* chatEvents(
  ask: Ask,
  parts: AsyncIterable<Indexed>,
  { head, ids, tokens }: StreamContext,
): AsyncGenerator<Sent, undefined> {
  const finished: Finished[] = [];
  const begun = new Set<number>();
  // A stream that tells its counts at the end says so in every chunk.
  const more = ask.includeUsage ? { usage: null } : {};
  const made = (index: number, delta: Delta, rest = {}, extra = {}): Sent[] => {
    const next = ids.next(index);
    return next ? [{ ...next, data: { ...chatChunk(head, index, delta, rest), ...more, ...extra } }] : [];
  };
  for await (const { index, part } of parts) {
    if (!begun.has(index)) {
      begun.add(index);
      yield* made(index, { role: "assistant", content: "" });
    }
    if (part.type === "end") {
      finished[index] = part.finished;
      yield* made(index, {}, { reason: part.reason }, { timings: timings(part.finished) });
    } else if (part.type !== "text") yield* made(index, callDelta(part, head, index));
    else if (part.logprobs) {
      await tokens.learnLogprobs(part.logprobs);
      yield* made(index, { content: part.text }, { logprobs: chatLogprobs(part.logprobs, (id) => tokens.of(id)) });
    } else if (part.text !== "") yield* made(index, { content: part.text });
  }
  yield* lastEvents(ask, head, "chat.completion.chunk", finished, ids);
}

function callDelta(part: Extract<Part, { type: "call" | "arguments" }>, head: Head, answer: number): Delta {
  const index = part.call;
  if (part.type === "arguments") return { tool_calls: [{ index, function: { arguments: part.text } }] };
  const id = part.id ?? callId(head, answer, index);
  return { tool_calls: [{ index, id, type: "function", function: { name: part.name, arguments: "" } }] };
}

/** The counts, where they are asked for, and the end. */
export function* lastEvents(
  ask: Ask,
  head: Head,
  object: string,
  finished: readonly Finished[],
  ids: EventIds,
): Generator<Sent> {
  if (ask.includeUsage) {
    const counts = { usage: usage(finished, ask.n), timings: timings(finished[0]!) };
    const next = ids.next();
    if (next) yield { ...next, data: usageChunk(head, object, counts) };
  }
  yield { data: "[DONE]" };
}
