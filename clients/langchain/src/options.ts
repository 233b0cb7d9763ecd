/** Fields and call options of LangChain as options of ternlight. */

import type { UsageMetadata } from "@langchain/core/messages";
import type { Finished, ToolChoice } from "ternlight";
import type { ChatPartsOptions } from "ternlight/integration";

/** What LangChain's own classes read of a constructor's fields. Everything else is the engine's, which refuses what it does not know. */
const FIELDS = new Set([
  ...["cache", "verbose", "callbacks", "callbackManager", "tags", "metadata", "name"],
  ...["maxConcurrency", "maxRetries", "onFailedAttempt", "disableStreaming", "outputVersion"],
  ...["model", "loadOptions"],
]);

/**
 * The engine's options. LangChain and LangGraph put things of their own into the options of calls, more of them with each version, so
 * that these are picked by name. The type has the compiler say which one is missing.
 */
const OPTIONS: Record<Exclude<keyof ChatPartsOptions, "signal" | "tools" | "toolChoice" | "session">, true> = {
  temperature: true,
  dynamicTemperature: true,
  dynamicExponent: true,
  topK: true,
  adaptiveTopK: true,
  topP: true,
  minP: true,
  typicalP: true,
  topNSigma: true,
  xtcProbability: true,
  xtcThreshold: true,
  repetitionPenalty: true,
  frequencyPenalty: true,
  presencePenalty: true,
  penaltyLastN: true,
  dryMultiplier: true,
  dryBase: true,
  dryAllowedLength: true,
  dryLastN: true,
  dryBreakers: true,
  mirostatTau: true,
  mirostatEta: true,
  logitBias: true,
  bannedSequences: true,
  samplers: true,
  generationConfig: true,
  seed: true,
  logprobs: true,
  promptLookup: true,
  mtpDraft: true,
  maxTokens: true,
  stop: true,
  truncate: true,
  ignoreEos: true,
  keepSpecialTokens: true,
  onContextFull: true,
  sanitize: true,
  addSpecial: true,
  responseFormat: true,
  logitsProcessor: true,
  pieces: true,
  adapters: true,
  templateOptions: true,
  parseSpecialTokens: true,
  oneCall: true,
};

const given = (options: object, wanted: (name: string) => boolean): Record<string, unknown> =>
  Object.fromEntries(Object.entries(options).filter(([name, value]) => value !== undefined && wanted(name)));

/** Options of every call, from a constructor's fields. */
export const fieldOptions = (fields: object) => given(fields, (name) => !FIELDS.has(name));

/** Options of one call. */
export const callOptions = (options: object) => given(options, (name) => Object.hasOwn(OPTIONS, name));

/** Choices as the packages for other models have them: `any`, a name, OpenAI's and Anthropic's shapes. */
export function toolChoiceOf(choice: unknown): ToolChoice | undefined {
  if (choice === undefined || choice === null) return undefined;
  if (choice === "any") return "required";
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  if (typeof choice === "string") return { name: choice };
  const { type, name, function: inner } = choice as { type?: string; name?: string; function?: { name: string } };
  if (inner) return { name: inner.name };
  return name === undefined ? toolChoiceOf(type) : { name };
}

export function usageOf({ timings }: Finished): UsageMetadata {
  const { promptN, cachedN, recomputedN = 0, predictedN } = timings;
  const input = promptN + cachedN + recomputedN;
  return {
    input_tokens: input,
    output_tokens: predictedN,
    total_tokens: input + predictedN,
    input_token_details: { cache_read: cachedN },
  };
}

/** What an answer says of itself beside its text. */
export function metadataOf(name: string, { finishReason, stopText, droppedMessages, timings }: Finished, calls = 0) {
  return {
    model_name: name,
    finish_reason: calls > 0 && finishReason !== "length" ? "tool_calls" : finishReason,
    timings,
    ...(stopText !== undefined && { stop_text: stopText }),
    ...(droppedMessages !== undefined && { dropped_messages: droppedMessages }),
  };
}
