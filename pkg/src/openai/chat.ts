/** POST /v1/chat/completions: the request. */

import type { ChatMessage, ToolChoice } from "../types/index.ts";
import type { Ask, ChatAsk } from "./ask.ts";
import { faulty, invalid } from "./errors.ts";
import {
  choice,
  ignored,
  limit,
  llamaSampling,
  MAX_MESSAGES,
  MAX_TOOLS,
  metadata,
  model,
  option,
  orNull,
  refused,
  sampling,
  streaming,
  text,
  textOrNull,
} from "./fields.ts";
import { type Fields, formatField, limitOf, samplingOf } from "./sampling.ts";
import { check, type Schema } from "./schema.ts";

const parts = (...types: string[]): Schema => ({
  anyOf: [
    text,
    {
      type: "array",
      minItems: 1,
      items: {
        anyOf: types.map((type) => ({
          type: "object",
          required: ["type", type],
          properties: { type: { type: "string", enum: [type] }, [type]: text },
        })),
        discriminator: { propertyName: "type" },
      },
    },
  ],
});

const message = (role: string, required: string[], properties: Readonly<Record<string, Schema>>): Schema => ({
  type: "object",
  required: ["role", ...required],
  properties: { role: { type: "string", enum: [role] }, ...properties },
});

const call: Schema = {
  type: "object",
  required: ["id", "type", "function"],
  properties: {
    id: text,
    type: { type: "string", enum: ["function"] },
    function: { type: "object", required: ["name", "arguments"], properties: { name: text, arguments: text } },
  },
};

const named = { name: textOrNull };
const messages: Schema = {
  type: "array",
  minItems: 1,
  maxItems: MAX_MESSAGES,
  items: {
    anyOf: [
      message("system", ["content"], { content: parts("text"), ...named }),
      message("developer", ["content"], { content: parts("text"), ...named }),
      message("user", ["content"], { content: parts("text"), ...named }),
      message("assistant", [], {
        content: orNull(parts("text", "refusal")),
        refusal: { type: ["string", "null"] },
        tool_calls: orNull({ type: "array", items: call }),
        ...named,
      }),
      message("tool", ["content", "tool_call_id"], { content: parts("text"), tool_call_id: text }),
    ],
    discriminator: { propertyName: "role" },
  },
};

export const tool: Schema = {
  type: "object",
  required: ["type", "function"],
  properties: {
    type: { type: "string", enum: ["function"] },
    function: {
      type: "object",
      required: ["name"],
      properties: {
        name: text,
        description: { type: ["string", "null"] },
        parameters: { type: ["object", "null"] },
        strict: { type: ["boolean", "null"] },
      },
    },
  },
};

const chosenTool: Schema = {
  type: "object",
  required: ["type", "function"],
  properties: {
    type: { type: "string", enum: ["function"] },
    function: { type: "object", required: ["name"], properties: { name: text } },
  },
};

const formats: Schema = {
  anyOf: [
    { type: "object", required: ["type"], properties: { type: { type: "string", enum: ["text"] } } },
    { type: "object", required: ["type"], properties: { type: { type: "string", enum: ["json_object"] } } },
    {
      type: "object",
      required: ["type", "json_schema"],
      properties: {
        type: { type: "string", enum: ["json_schema"] },
        json_schema: {
          type: "object",
          required: ["name"],
          properties: {
            name: text,
            description: { type: ["string", "null"] },
            schema: { type: ["object", "null"] },
            strict: { type: ["boolean", "null"] },
          },
        },
      },
    },
    { type: "null" },
  ],
  discriminator: { propertyName: "type" },
};

export const chatRequest: Schema = {
  type: "object",
  required: ["model", "messages"],
  properties: {
    model,
    messages,
    max_completion_tokens: limit,
    max_tokens: { ...limit, description: "The earlier name of max_completion_tokens, which wins." },
    n: { type: ["integer", "null"], minimum: 1, maximum: 128 },
    ...sampling,
    ...streaming,
    logprobs: { type: ["boolean", "null"] },
    top_logprobs: option("logprobs", { maximum: 20, description: "Counts beside logprobs: true." }),
    response_format: formats,
    tools: orNull({ type: "array", maxItems: MAX_TOOLS, items: tool }),
    tool_choice: { anyOf: [{ type: "string", enum: ["none", "auto", "required"] }, chosenTool, { type: "null" }] },
    parallel_tool_calls: { type: ["boolean", "null"], description: "false ends an answer behind its first call." },
    chat_template_kwargs: { type: ["object", "null"], description: "Further variables for the chat template." },
    ...llamaSampling,
    reasoning_effort: choice("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    user: ignored({ type: ["string", "null"] }, "It is not kept."),
    metadata,
    store: ignored({ type: ["boolean", "null"] }, "Nothing is stored."),
    service_tier: ignored(choice("auto", "default", "flex", "scale", "priority", "fast"), "There is one tier."),
    prompt_cache_key: ignored({ type: ["string", "null"] }, "Beginnings are found by their content."),
    prompt_cache_retention: ignored(choice("in_memory", "24h"), "The KV cache decides."),
    safety_identifier: ignored({ type: ["string", "null"], maxLength: 64 }, "It is not kept."),
    verbosity: ignored(choice("low", "medium", "high"), "Models here do not know it."),
    prediction: ignored({ type: ["object", "null"] }, "Guesses come from the text so far: see promptLookup."),
    modalities: ignored(orNull({ type: "array", items: { type: "string", enum: ["text"] } }), "Answers are text."),
    audio: refused("Answers are text."),
    web_search_options: refused("Nothing is searched."),
    functions: refused("The earlier form of tools."),
    function_call: refused("The earlier form of tool_choice."),
  },
};

/** @param known throws where there is no such model, which is told before what is wrong with the request itself */
export function readChat(body: unknown, defaultMaxTokens: number, known: (model: string) => unknown = () => {}): Ask {
  const fault = check(chatRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as Fields & { model: string };
  known(fields.model);
  const {
    stream_options: streamed,
    logprobs,
    top_logprobs: top,
  } = fields as {
    stream_options?: { include_usage?: boolean } | null;
    logprobs?: boolean | null;
    top_logprobs?: number | null;
  };
  const chat = chatOf(fields);
  return {
    model: fields.model,
    prompts: [chat],
    options: {
      ...samplingOf(fields),
      ...limitOf(fields, ["max_completion_tokens", "max_tokens"], defaultMaxTokens),
      ...(logprobs ? { logprobs: top ?? 0 } : {}),
    },
    n: (fields.n as number | null) ?? 1,
    stream: fields.stream === true,
    includeUsage: streamed?.include_usage === true,
    calls: chat.tools !== undefined && chat.toolChoice !== "none",
    oneCall: fields.parallel_tool_calls === false,
    echo: false,
    param: "messages",
    format: formatField(fields),
  };
}

/** What is rendered: messages, tools and variables of the template. */
export function chatOf(fields: Fields): ChatAsk {
  const { tools, tool_choice: chosen } = fields as { tools?: unknown[] | null; tool_choice?: Chosen };
  const { reasoning_effort: effort, chat_template_kwargs: own } = fields;
  const toolChoice = toolChoiceOf(chosen);
  const mustCall = toolChoice !== "auto" && toolChoice !== "none";
  if (mustCall && !tools?.length) throw invalid("tool_choice", "tool_choice needs tools");
  const variables = { ...(effort ? { reasoning_effort: effort } : {}), ...((own as object | null) ?? {}) };
  return {
    messages: (fields.messages as Message[]).map(toMessage),
    ...(tools?.length ? { tools, toolChoice } : {}),
    ...(Object.keys(variables).length > 0 ? { templateOptions: variables } : {}),
  };
}

type Chosen = "none" | "auto" | "required" | { function: { name: string } } | null | undefined;

function toolChoiceOf(chosen: Chosen): ToolChoice {
  if (!chosen) return "auto";
  return typeof chosen === "string" ? chosen : { name: chosen.function.name };
}

export interface Message {
  role: string;
  content?: string | { type: string; text?: string; refusal?: string }[] | null;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[] | null;
  [key: string]: unknown;
}

/** As templates know messages: `developer` is `system`, parts of text are one text, arguments of calls are objects. */
function toMessage({ role, content, tool_calls: calls, ...rest }: Message): ChatMessage {
  const parts = Array.isArray(content) ? content.map(({ text, refusal }) => text ?? refusal ?? "").join("") : content;
  // A template would take a null for a value that is there.
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null));
  return {
    ...given,
    role: role === "developer" ? "system" : role,
    content: parts ?? (calls?.length ? null : ""),
    ...(calls?.length ? { tool_calls: calls.map((call) => ({ ...call, function: toObject(call.function) })) } : {}),
  };
}

function toObject(called: { name: string; arguments: string }): { name: string; arguments: unknown } {
  try {
    return { ...called, arguments: JSON.parse(called.arguments || "{}") };
  } catch {
    return called;
  }
}
