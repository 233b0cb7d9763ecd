/** What /v1/responses answers: a response, or the events of one. */

import { type Choice, callId, type Head, type Reason } from "../openai/replies.ts";
import type { Finished } from "../types/index.ts";
import type { Indexed } from "./answers.ts";
import type { EventIds } from "./resume.ts";
import type { Sent } from "./sse.ts";

/** What the response repeats of its request. */
export type Given = Readonly<Record<string, unknown>>;

interface Item {
  id: string;
  type: "message" | "function_call";
  [key: string]: unknown;
}

const tail = ({ id }: Head) => id.slice(id.indexOf("_") + 1);

const usage = ({ promptTokens, tokens, timings }: Finished) => ({
  input_tokens: promptTokens.length,
  input_tokens_details: { cached_tokens: timings.cachedN },
  output_tokens: tokens.length,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: promptTokens.length + tokens.length,
});

const textPart = (text: string) => ({ type: "output_text", text, annotations: [], logprobs: [] });

const messageItem = (head: Head, index: number, text: string | null): Item => ({
  id: `msg_${tail(head)}${index}`,
  type: "message",
  status: text === null ? "in_progress" : "completed",
  role: "assistant",
  content: text === null ? [] : [textPart(text)],
});

const callItem = (head: Head, index: number, name: string, args: string | null, id: string): Item => ({
  id: `fc_${tail(head)}${index}`,
  type: "function_call",
  status: args === null ? "in_progress" : "completed",
  call_id: id,
  name,
  arguments: args ?? "",
});

function response(head: Head, given: Given, status: string, output: readonly Item[], more: object = {}) {
  const {
    instructions,
    max_output_tokens,
    metadata,
    parallel_tool_calls,
    temperature,
    text,
    tool_choice,
    tools,
    top_p,
  } = given;
  return {
    id: head.id,
    object: "response",
    created_at: head.created,
    status,
    background: false,
    error: null,
    incomplete_details: null,
    instructions: instructions ?? null,
    max_output_tokens: max_output_tokens ?? null,
    metadata: metadata ?? {},
    model: head.model,
    output,
    parallel_tool_calls: parallel_tool_calls ?? true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    service_tier: "default",
    store: false,
    temperature: temperature ?? null,
    text: text ?? { format: { type: "text" } },
    tool_choice: tool_choice ?? "auto",
    tools: tools ?? [],
    top_p: top_p ?? null,
    truncation: "disabled",
    usage: null,
    user: null,
    ...more,
  };
}

function ended(head: Head, given: Given, output: readonly Item[], reason: Reason, finished: Finished) {
  const cut = reason === "length";
  const more = { usage: usage(finished), ...(cut ? { incomplete_details: { reason: "max_output_tokens" } } : {}) };
  return response(head, given, cut ? "incomplete" : "completed", output, more);
}

export function responseReply(head: Head, given: Given, { text, calls, reason }: Choice, finished: Finished) {
  const spoken = text !== "" || calls.length === 0 ? [messageItem(head, 0, text)] : [];
  const called = calls.map(({ id, function: { name, arguments: args } }, i) =>
    callItem(head, spoken.length + i, name, args, id),
  );
  return ended(head, given, [...spoken, ...called], reason, finished);
}

/** Events, each with its number. */
export async function* responseEvents(
  parts: AsyncIterable<Indexed>,
  { head, ids, given }: { head: Head; ids: EventIds; given: Given },
): AsyncGenerator<Sent, undefined> {
  const output = new Output(head);
  let number = 0;
  const send = (events: readonly object[]): Sent[] =>
    events.flatMap((event) => {
      const { type } = event as { type: string };
      const data = { ...event, sequence_number: number++ };
      const next = ids.next(0);
      return next ? [{ ...next, event: type, data }] : [];
    });
  for await (const { part } of parts) {
    if (number === 0) {
      const begun = response(head, given, "in_progress", []);
      yield* send(["response.created", "response.in_progress"].map((type) => ({ type, response: begun })));
    }
    if (part.type === "text") yield* send(part.text === "" ? [] : output.text(part.text));
    else if (part.type === "call") yield* send(output.call(part.name, part.id ?? callId(head, 0, part.call)));
    else if (part.type === "arguments") yield* send(output.arguments(part.text));
    else {
      if (output.empty) yield* send(output.text(""));
      yield* send(output.close());
      const whole = ended(head, given, output.items, part.reason, part.finished);
      yield* send([{ type: `response.${whole.status}`, response: whole }]);
    }
  }
}

/** The items of a response as they come. */
class Output {
  readonly #head: Head;
  readonly items: Item[] = [];
  /** The item that is open: its text, or its arguments. */
  #open: { item: Item; text: string } | null = null;

  constructor(head: Head) {
    this.#head = head;
  }

  /** Nothing has come so far, not even the beginning of an item. */
  get empty(): boolean {
    return this.items.length === 0 && this.#open === null;
  }

  get #place() {
    return { item_id: this.#open!.item.id, output_index: this.items.length };
  }

  text(delta: string): object[] {
    const events: object[] = [];
    if (this.#open?.item.type !== "message") {
      events.push(...this.close(), ...this.#begin(messageItem(this.#head, this.items.length, null)));
      const part = textPart("");
      events.push({ type: "response.content_part.added", ...this.#place, content_index: 0, part });
    }
    this.#open!.text += delta;
    if (delta === "") return events;
    return [...events, { type: "response.output_text.delta", ...this.#place, content_index: 0, delta, logprobs: [] }];
  }

  call(name: string, id: string): object[] {
    return [...this.close(), ...this.#begin(callItem(this.#head, this.items.length, name, null, id))];
  }

  arguments(delta: string): object[] {
    this.#open!.text += delta;
    return [{ type: "response.function_call_arguments.delta", ...this.#place, delta }];
  }

  close(): object[] {
    if (!this.#open) return [];
    const { item, text } = this.#open;
    const place = this.#place;
    const isText = item.type === "message";
    const done = isText
      ? messageItem(this.#head, this.items.length, text)
      : { ...item, status: "completed", arguments: text };
    const events = isText
      ? [
          { type: "response.output_text.done", ...place, content_index: 0, text, logprobs: [] },
          { type: "response.content_part.done", ...place, content_index: 0, part: textPart(text) },
        ]
      : [{ type: "response.function_call_arguments.done", ...place, name: item.name, arguments: text }];
    this.items.push(done);
    this.#open = null;
    return [...events, { type: "response.output_item.done", output_index: place.output_index, item: done }];
  }

  #begin(item: Item): object[] {
    this.#open = { item, text: "" };
    return [{ type: "response.output_item.added", output_index: this.items.length, item }];
  }
}
