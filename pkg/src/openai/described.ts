/** What answers look like, as the OpenAPI document tells it. */

import type { Schema } from "./schema.ts";

export const any: Schema = { type: "object" };
export const text: Schema = { type: "string" };
export const whole: Schema = { type: "integer", minimum: 0 };
export const number: Schema = { type: "number" };
export const list = (items: Schema): Schema => ({ type: "array", items });
const orNull = (schema: Schema): Schema => ({ anyOf: [schema, { type: "null" }] });
export const one = (value: string): Schema => ({ type: "string", enum: [value] });

/** An object of which every field is there, but for those whose names end in a question mark. */
export function object(fields: Readonly<Record<string, Schema>>): Schema {
  const names = Object.keys(fields);
  return {
    type: "object",
    required: names.filter((name) => !name.endsWith("?")),
    properties: Object.fromEntries(names.map((name) => [name.replace("?", ""), fields[name]!])),
  };
}

const tokenLogprob = { token: text, logprob: number, bytes: orNull(list(whole)) };
const chatLogprobs = object({
  content: orNull(list(object({ ...tokenLogprob, top_logprobs: list(object(tokenLogprob)) }))),
  refusal: { type: "null" },
});
const textLogprobs = object({
  tokens: list(text),
  // The first token of a prompt has none.
  token_logprobs: list({ type: ["number", "null"] }),
  top_logprobs: list(orNull({ type: "object", additionalProperties: number })),
  text_offset: list(whole),
});

const usage = object({
  prompt_tokens: whole,
  completion_tokens: whole,
  total_tokens: whole,
  prompt_tokens_details: object({ cached_tokens: whole, audio_tokens: whole }),
  completion_tokens_details: { type: "object", additionalProperties: whole },
});
const common = (kind: string) => ({
  id: text,
  object: one(kind),
  created: whole,
  model: text,
  system_fingerprint: text,
  usage,
  timings: { type: "object", additionalProperties: number } as Schema,
});

const call = object({ id: text, type: one("function"), function: object({ name: text, arguments: text }) });
export const chatReply = object({
  ...common("chat.completion"),
  choices: list(
    object({
      index: whole,
      message: object({
        role: one("assistant"),
        content: { type: ["string", "null"] },
        refusal: { type: "null" },
        "tool_calls?": list(call),
      }),
      logprobs: orNull(chatLogprobs),
      finish_reason: { type: "string", enum: ["stop", "length", "tool_calls"] },
    }),
  ),
});
export const completionReply = object({
  ...common("text_completion"),
  choices: list(
    object({
      index: whole,
      text,
      logprobs: orNull(textLogprobs),
      finish_reason: { type: "string", enum: ["stop", "length"] },
    }),
  ),
});
export const embeddingReply = object({
  object: one("list"),
  model: text,
  data: list(object({ object: one("embedding"), index: whole, embedding: { anyOf: [list(number), text] } })),
  usage: object({ prompt_tokens: whole, total_tokens: whole }),
});
export const modelEntry = object({ id: text, object: one("model"), created: whole, owned_by: text, "parent?": text });
export const error = object({
  error: object({
    message: text,
    type: text,
    param: { type: ["string", "null"] },
    code: { type: ["string", "null"] },
  }),
});
export const anthropicError = object({ type: one("error"), error: object({ type: text, message: text }) });

const time = { type: ["integer", "null"] } as const satisfies Schema;
export const fileObject = object({
  id: text,
  object: one("file"),
  bytes: whole,
  created_at: whole,
  filename: text,
  purpose: { type: "string", enum: ["batch", "batch_output"] },
  status: one("processed"),
});
const batchFault = object({ code: text, message: text, param: { type: ["string", "null"] }, line: time });
export const batchObject = object({
  id: text,
  object: one("batch"),
  endpoint: text,
  model: { type: ["string", "null"] },
  errors: orNull(object({ object: one("list"), data: list(batchFault) })),
  input_file_id: text,
  completion_window: text,
  status: {
    type: "string",
    enum: ["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"],
  },
  output_file_id: { type: ["string", "null"] },
  error_file_id: { type: ["string", "null"] },
  created_at: whole,
  in_progress_at: time,
  expires_at: whole,
  finalizing_at: time,
  completed_at: time,
  failed_at: time,
  expired_at: time,
  cancelling_at: time,
  cancelled_at: time,
  request_counts: object({ total: whole, completed: whole, failed: whole }),
  metadata: orNull({ type: "object", additionalProperties: text }),
});
export const page = (item: Schema) =>
  object({
    object: one("list"),
    data: list(item),
    first_id: { type: ["string", "null"] },
    last_id: { type: ["string", "null"] },
    has_more: { type: "boolean" },
  });

export const flag: Schema = { type: "boolean" };
const outputText = object({ type: one("output_text"), text, annotations: list(any), logprobs: list(any) });
const responseItem: Schema = {
  anyOf: [
    object({
      id: text,
      type: one("message"),
      status: { type: "string", enum: ["in_progress", "completed"] },
      role: one("assistant"),
      content: list(outputText),
    }),
    object({ id: text, type: one("function_call"), status: text, call_id: text, name: text, arguments: text }),
  ],
  discriminator: { propertyName: "type" },
};
export const responseReply = object({
  id: text,
  object: one("response"),
  created_at: whole,
  status: { type: "string", enum: ["completed", "incomplete"] },
  background: flag,
  error: { type: "null" },
  incomplete_details: orNull(object({ reason: one("max_output_tokens") })),
  instructions: { type: ["string", "null"] },
  max_output_tokens: time,
  metadata: { type: "object", additionalProperties: text },
  model: text,
  output: list(responseItem),
  parallel_tool_calls: flag,
  previous_response_id: { type: "null" },
  reasoning: any,
  service_tier: text,
  store: flag,
  temperature: { type: ["number", "null"] },
  text: any,
  tool_choice: { anyOf: [text, any] },
  tools: list(any),
  top_p: { type: ["number", "null"] },
  truncation: one("disabled"),
  usage: object({
    input_tokens: whole,
    input_tokens_details: object({ cached_tokens: whole }),
    output_tokens: whole,
    output_tokens_details: object({ reasoning_tokens: whole }),
    total_tokens: whole,
  }),
  user: { type: "null" },
});
export const messageReply = object({
  id: text,
  type: one("message"),
  role: one("assistant"),
  model: text,
  content: list({
    anyOf: [object({ type: one("text"), text }), object({ type: one("tool_use"), id: text, name: text, input: {} })],
    discriminator: { propertyName: "type" },
  }),
  stop_reason: {
    type: "string",
    enum: ["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"],
  },
  stop_sequence: { type: ["string", "null"] },
  usage: object({
    input_tokens: whole,
    cache_creation_input_tokens: whole,
    cache_read_input_tokens: whole,
    output_tokens: whole,
  }),
});
