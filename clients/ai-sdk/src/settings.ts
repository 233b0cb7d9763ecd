/** The AI SDK's settings as options of a chat, and warnings for what has no effect. */

import type { LanguageModelV3CallOptions, SharedV3Warning } from "@ai-sdk/provider";
import type { ChatOptions, ToolChoice } from "ternlight";
import type { ChatPartsOptions } from "ternlight/integration";

/**
 * What `providerOptions.ternlight` of a call may hold: every option of `chat`, as far as it is data, and `oneCall`, which ends an answer
 * behind its first call.
 */
export type TernlightProviderOptions = Omit<
  ChatPartsOptions,
  "signal" | "logitsProcessor" | "tools" | "toolChoice" | "session"
>;

export interface Settings {
  options: ChatPartsOptions;
  warnings: SharedV3Warning[];
}

/** Settings whose values are an option's own. */
const SAME = {
  maxOutputTokens: "maxTokens",
  temperature: "temperature",
  topP: "topP",
  topK: "topK",
  presencePenalty: "presencePenalty",
  frequencyPenalty: "frequencyPenalty",
} as const satisfies Partial<Record<keyof LanguageModelV3CallOptions, keyof ChatOptions>>;

/** Seeds have 53 bits; negative ones are taken modulo. */
const SEEDS = 2 ** 53;

export function toSettings(call: LanguageModelV3CallOptions): Settings {
  const warnings: SharedV3Warning[] = [];
  const options: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(SAME)) {
    const value = call[name as keyof typeof SAME];
    if (value !== undefined && value !== null) options[option] = value;
  }
  if (call.seed !== undefined) options.seed = call.seed < 0 ? (call.seed % SEEDS) + SEEDS : call.seed % SEEDS;
  const stop = call.stopSequences?.filter((text) => text !== "");
  if (stop?.length) options.stop = stop;
  Object.assign(options, toolsOf(call, warnings), call.providerOptions?.ternlight);
  const { responseFormat: format } = call;
  if (format?.type === "json") {
    options.responseFormat = format.schema ? { type: "json_schema", schema: format.schema } : "json";
    if (options.tools) leaveToolsOut(options, warnings);
  }
  const { reasoning } = call as { reasoning?: string };
  if (reasoning && reasoning !== "provider-default" && reasoning !== "none")
    warnings.push({ type: "unsupported", feature: "reasoning", details: "the model thinks as its template has it" });
  return { options: options as ChatPartsOptions, warnings };
}

/** An answer keeps to one format: calls, or JSON. */
function leaveToolsOut(options: Record<string, unknown>, warnings: SharedV3Warning[]): void {
  options.toolChoice = "none";
  const details = "an answer in JSON calls no tools; ask for them in a call without a format";
  warnings.push({ type: "unsupported", feature: "tools with responseFormat", details });
}

function toolsOf({ tools, toolChoice }: LanguageModelV3CallOptions, warnings: SharedV3Warning[]): ChatOptions {
  const known = tools?.flatMap((tool) => {
    if (tool.type === "function") {
      const { name, description, inputSchema } = tool;
      return [{ type: "function", function: { name, ...(description && { description }), parameters: inputSchema } }];
    }
    warnings.push({ type: "unsupported", feature: `tool ${tool.id}`, details: "only tools of the program run here" });
    return [];
  });
  return known?.length ? { tools: known, toolChoice: choiceOf(toolChoice) } : {};
}

function choiceOf(choice: LanguageModelV3CallOptions["toolChoice"]): ToolChoice {
  return choice?.type === "tool" ? { name: choice.toolName } : (choice?.type ?? "auto");
}
