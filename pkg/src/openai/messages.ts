/** POST /v1/messages, Anthropic's interface, as far as text and tools go: the request. */

import type { ChatMessage, ToolChoice } from "../types/index.ts";
import type { Ask, ChatAsk } from "./ask.ts";
import { faulty, invalid } from "./errors.ts";
import { ignored, MAX_MESSAGES, MAX_TOOLS, model, option, orNull, refused, text, textOrNull, texts } from "./fields.ts";
import { type Fields, limitOf } from "./sampling.ts";
import { check, type Schema } from "./schema.ts";

const block = (type: string, required: string[], properties: Readonly<Record<string, Schema>>): Schema => ({
  type: "object",
  required: ["type", ...required],
  properties: { type: { type: "string", enum: [type] }, ...properties },
});

const textBlock = block("text", ["text"], { text });
const told = (...blocks: Schema[]): Schema => ({
  anyOf: [text, { type: "array", items: { anyOf: blocks, discriminator: { propertyName: "type" } } }],
});

const conversation: Readonly<Record<string, Schema>> = {
  model,
  messages: {
    type: "array",
    minItems: 1,
    maxItems: MAX_MESSAGES,
    items: {
      type: "object",
      required: ["role", "content"],
      properties: {
        role: { type: "string", enum: ["user", "assistant"] },
        content: told(
          textBlock,
          // What was thought before is no part of what a model reads again.
          block("thinking", [], { thinking: textOrNull, signature: textOrNull }),
          block("redacted_thinking", [], { data: textOrNull }),
          block("tool_use", ["id", "name", "input"], { id: text, name: text, input: { type: "object" } }),
          block("tool_result", ["tool_use_id"], { tool_use_id: text, content: orNull(told(textBlock)) }),
        ),
      },
    },
  },
  system: orNull(told(textBlock)),
  tools: orNull({
    type: "array",
    maxItems: MAX_TOOLS,
    items: {
      type: "object",
      required: ["name", "input_schema"],
      properties: { name: text, description: { type: ["string", "null"] }, input_schema: { type: "object" } },
    },
  }),
  tool_choice: {
    anyOf: [
      ...["auto", "any", "none"].map((type) =>
        block(type, [], { disable_parallel_tool_use: { type: ["boolean", "null"] } }),
      ),
      block("tool", ["name"], { name: text }),
      { type: "null" },
    ],
    discriminator: { propertyName: "type" },
  },
  thinking: ignored({ type: ["object", "null"] }, "Models here think in their answers, where they do."),
};

export const countRequest: Schema = { type: "object", required: ["model", "messages"], properties: conversation };

export const messagesRequest: Schema = {
  type: "object",
  required: ["model", "messages", "max_tokens"],
  properties: {
    ...conversation,
    max_tokens: { type: "integer", minimum: 1 },
    temperature: option("temperature", { maximum: 1 }),
    top_p: option("topP"),
    top_k: option("topK"),
    stop_sequences: orNull({ ...texts, maxItems: 64 }),
    stream: { type: ["boolean", "null"] },
    seed: { type: ["integer", "null"], description: "Not Anthropic's: the same seed gives the same answer." },
    metadata: ignored({ type: ["object", "null"] }, "It is not kept."),
    service_tier: ignored({ type: ["string", "null"] }, "There is one tier."),
    mcp_servers: refused("Nothing is called from here."),
  },
};

interface Block {
  type: string;
  text?: string;
  id?: string;
  name?: string;
  input?: object;
  tool_use_id?: string;
  content?: string | Block[] | null;
}

const SAME = { temperature: "temperature", top_p: "topP", top_k: "topK", seed: "seed" } as const;

export function readMessages(body: unknown): Ask {
  const fault = check(messagesRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as Fields & { model: string };
  const options: Record<string, unknown> = {};
  for (const [field, name] of Object.entries(SAME))
    if (fields[field] !== undefined && fields[field] !== null) options[name] = fields[field];
  const stop = (fields.stop_sequences as string[] | null)?.filter((one) => one !== "");
  const chat = messagesChat(fields);
  const choice = fields.tool_choice as { disable_parallel_tool_use?: boolean } | null | undefined;
  return {
    model: fields.model,
    prompts: [chat],
    options: { ...options, ...(stop?.length ? { stop } : {}), ...limitOf(fields, ["max_tokens"], -1) },
    n: 1,
    stream: fields.stream === true,
    includeUsage: true,
    calls: chat.tools !== undefined && chat.toolChoice !== "none",
    oneCall: choice?.disable_parallel_tool_use === true,
    echo: false,
    param: "messages",
  };
}

export function readCount(body: unknown): { model: string; chat: ChatAsk } {
  const fault = check(countRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as Fields & { model: string };
  return { model: fields.model, chat: messagesChat(fields) };
}

function messagesChat(fields: Fields): ChatAsk {
  const {
    system,
    messages,
    tools,
    tool_choice: chosen,
  } = fields as {
    system?: string | Block[] | null;
    messages: { role: string; content: string | Block[] }[];
    tools?: { name: string; description?: string | null; input_schema: object }[] | null;
    tool_choice?: { type: string; name?: string } | null;
  };
  const toolChoice = toolChoiceOf(chosen);
  if (toolChoice !== "auto" && toolChoice !== "none" && !tools?.length)
    throw invalid("tool_choice", "tool_choice needs tools");
  const own = tools?.map(({ name, description, input_schema }) => ({
    type: "function",
    function: { name, ...(description ? { description } : {}), parameters: input_schema },
  }));
  return {
    messages: [...(system ? [{ role: "system", content: joined(system) }] : []), ...messages.flatMap(toMessages)],
    ...(own?.length ? { tools: own, toolChoice } : {}),
  };
}

function toolChoiceOf(chosen: { type: string; name?: string } | null | undefined): ToolChoice {
  if (!chosen || chosen.type === "auto") return "auto";
  if (chosen.type === "none") return "none";
  return chosen.type === "any" ? "required" : { name: chosen.name! };
}

const joined = (content: string | readonly Block[] | null | undefined): string =>
  typeof content === "string" ? content : (content ?? []).map(({ text }) => text ?? "").join("");

/** Results of tools are messages of their own, before what the user says beside them. */
function toMessages({ role, content }: { role: string; content: string | Block[] }): ChatMessage[] {
  if (typeof content === "string") return [{ role, content }];
  const results = content.filter(({ type }) => type === "tool_result");
  const calls = content.filter(({ type }) => type === "tool_use");
  const said = joined(content.filter(({ type }) => type === "text"));
  const tool_calls = calls.map(({ id, name, input }) => ({
    id,
    type: "function",
    function: { name, arguments: input },
  }));
  return [
    ...results.map(({ tool_use_id, content }) => ({
      role: "tool",
      content: joined(content),
      tool_call_id: tool_use_id,
    })),
    ...(calls.length > 0 ? [{ role, content: said === "" ? null : said, tool_calls }] : []),
    ...(calls.length === 0 && (said !== "" || results.length === 0) ? [{ role, content: said }] : []),
  ];
}
