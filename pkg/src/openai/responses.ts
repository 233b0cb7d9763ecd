/** POST /v1/responses without any state: the request. */

import type { ChatMessage, GenerateOptions } from "../types/index.ts";
import type { Ask, ChatAsk } from "./ask.ts";
import { chatOf } from "./chat.ts";
import { faulty, invalid } from "./errors.ts";
import {
  choice,
  ignored,
  MAX_MESSAGES,
  MAX_TOOLS,
  metadata,
  model,
  option,
  orNull,
  refused,
  text,
  textOrNull,
} from "./fields.ts";
import { type Fields, limitOf, samplingOf } from "./sampling.ts";
import { check, type Schema } from "./schema.ts";

const partText = { text: textOrNull, refusal: textOrNull };

const item: Schema = {
  type: "object",
  properties: {
    type: textOrNull,
    role: choice("system", "developer", "user", "assistant"),
    content: {
      anyOf: [
        text,
        { type: "array", items: { type: "object", required: ["type"], properties: { type: text, ...partText } } },
        { type: "null" },
      ],
    },
    call_id: textOrNull,
    name: textOrNull,
    arguments: textOrNull,
    output: { anyOf: [text, { type: "array", items: { type: "object", properties: partText } }, { type: "null" }] },
  },
};

export const responsesRequest: Schema = {
  type: "object",
  required: ["model", "input"],
  properties: {
    model,
    input: { anyOf: [text, { type: "array", minItems: 1, maxItems: MAX_MESSAGES, items: item }] },
    instructions: { type: ["string", "null"] },
    max_output_tokens: { type: ["integer", "null"], minimum: 1 },
    temperature: option("temperature", { maximum: 2 }),
    top_p: option("topP"),
    top_k: option("topK", { description: "Not OpenAI's." }),
    seed: { type: ["integer", "null"], description: "Not OpenAI's: the same seed gives the same answer." },
    stream: { type: ["boolean", "null"] },
    text: orNull({
      type: "object",
      properties: {
        format: orNull({
          type: "object",
          required: ["type"],
          properties: {
            type: { type: "string", enum: ["text", "json_object", "json_schema"] },
            name: textOrNull,
            schema: { type: ["object", "null"] },
          },
        }),
        verbosity: ignored(choice("low", "medium", "high"), "Models here do not know it."),
      },
    }),
    tools: orNull({
      type: "array",
      maxItems: MAX_TOOLS,
      items: {
        type: "object",
        required: ["type", "name"],
        properties: {
          type: { type: "string", enum: ["function"] },
          name: text,
          description: { type: ["string", "null"] },
          parameters: { type: ["object", "null"] },
          strict: { type: ["boolean", "null"] },
        },
      },
    }),
    tool_choice: {
      anyOf: [
        { type: "string", enum: ["none", "auto", "required"] },
        {
          type: "object",
          required: ["type", "name"],
          properties: { type: { type: "string", enum: ["function"] }, name: text },
        },
        { type: "null" },
      ],
    },
    parallel_tool_calls: { type: ["boolean", "null"] },
    reasoning: ignored({ type: ["object", "null"] }, "Models here think in their answers, where they do."),
    store: ignored({ type: ["boolean", "null"] }, "Nothing is stored."),
    truncation: choice("disabled", "auto"),
    include: ignored({ type: ["array", "null"] }, "There is nothing more to include."),
    user: ignored({ type: ["string", "null"] }, "It is not kept."),
    metadata,
    service_tier: ignored({ type: ["string", "null"] }, "There is one tier."),
    previous_response_id: refused("Nothing is stored: give the whole conversation as input."),
    conversation: refused("Nothing is stored: give the whole conversation as input."),
    prompt: refused("Nothing is stored."),
    background: { type: ["boolean", "null"], enum: [false], description: "Nothing runs in the background." },
  },
};

interface Item {
  type?: string | null;
  role?: string | null;
  content?: string | { type: string; text?: string | null; refusal?: string | null }[] | null;
  call_id?: string | null;
  name?: string | null;
  arguments?: string | null;
  output?: string | { text?: string | null }[] | null;
}

export function readResponses(body: unknown, defaultMaxTokens: number): Ask {
  const fault = check(responsesRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as Fields & { model: string };
  const format = (fields.text as { format?: Record<string, unknown> | null } | null)?.format;
  const { temperature, top_p, top_k, seed } = fields;
  const chat = responsesChat(fields);
  const options: GenerateOptions = samplingOf({
    temperature,
    top_p,
    top_k,
    seed,
    ...(format ? { response_format: { type: format.type, json_schema: format } } : {}),
  });
  return {
    model: fields.model,
    prompts: [chat],
    options: { ...options, ...limitOf(fields, ["max_output_tokens"], defaultMaxTokens) },
    n: 1,
    stream: fields.stream === true,
    includeUsage: true,
    calls: chat.tools !== undefined && chat.toolChoice !== "none",
    oneCall: fields.parallel_tool_calls === false,
    echo: false,
    param: "input",
    format: "text.format",
  };
}

function responsesChat(fields: Fields): ChatAsk {
  const {
    input,
    instructions,
    tools,
    tool_choice: chosen,
  } = fields as {
    input: string | Item[];
    instructions?: string | null;
    tools?: { type: string; name: string }[] | null;
    tool_choice?: string | { name: string } | null;
  };
  const items: Item[] = typeof input === "string" ? [{ role: "user", content: input }] : input;
  const messages = items.map((one, i) => toMessage(one, `input[${i}]`)).filter((one) => one !== null);
  if (messages.length === 0) throw invalid("input", "input has no message");
  return chatOf({
    messages: [...(instructions ? [{ role: "system", content: instructions }] : []), ...merged(messages)],
    tools: tools?.map(({ type, ...own }) => ({ type, function: own })),
    tool_choice: typeof chosen === "object" && chosen ? { type: "function", function: { name: chosen.name } } : chosen,
  });
}

function toMessage(one: Item, at: string): ChatMessage | null {
  const type = one.type ?? "message";
  if (type === "reasoning" || type === "item_reference") return null;
  if (type === "function_call") {
    const call = {
      id: one.call_id ?? "",
      type: "function",
      function: { name: one.name ?? "", arguments: one.arguments ?? "" },
    };
    return { role: "assistant", content: null, tool_calls: [call] };
  }
  if (type === "function_call_output") {
    const output = Array.isArray(one.output) ? one.output.map(({ text }) => text ?? "").join("") : (one.output ?? "");
    return { role: "tool", content: output, tool_call_id: one.call_id ?? "" };
  }
  if (type !== "message")
    throw invalid(`${at}.type`, `${at}.type must be "message", "function_call" or "function_call_output"`);
  if (!one.role) throw invalid(`${at}.role`, `${at}.role is missing`);
  const content = one.content ?? "";
  if (typeof content === "string") return { role: one.role, content };
  const wrong = content.findIndex(({ type }) => !["input_text", "output_text", "text", "refusal"].includes(type));
  if (wrong >= 0)
    throw invalid(`${at}.content[${wrong}].type`, `${at}.content[${wrong}].type must be "input_text" or "output_text"`);
  return { role: one.role, content: content.map(({ text, refusal }) => text ?? refusal ?? "").join("") };
}

/** Calls that follow each other, or a text of the assistant, are one message. */
function merged(messages: readonly ChatMessage[]): ChatMessage[] {
  const all: ChatMessage[] = [];
  for (const message of messages) {
    const last = all.at(-1);
    if (message.tool_calls && last?.role === "assistant") {
      const calls = [...((last.tool_calls as unknown[] | undefined) ?? []), ...(message.tool_calls as unknown[])];
      all[all.length - 1] = { ...last, tool_calls: calls };
    } else all.push(message);
  }
  return all;
}
