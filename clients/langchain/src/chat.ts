/** A chat model of LangChain. */

import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import type {
  BaseLanguageModelInput,
  StructuredOutputMethodOptions,
  ToolDefinition,
} from "@langchain/core/language_models/base";
import {
  BaseChatModel,
  type BaseChatModelCallOptions,
  type BaseChatModelParams,
  type BindToolsInput,
} from "@langchain/core/language_models/chat_models";
import {
  assembleStructuredOutputPipeline,
  createContentParser,
  createFunctionCallingParser,
} from "@langchain/core/language_models/structured_output";
import { AIMessage, type AIMessageChunk, type BaseMessage, type MessageContent } from "@langchain/core/messages";
import { type ChatGeneration, ChatGenerationChunk, type ChatResult } from "@langchain/core/outputs";
import type { Runnable } from "@langchain/core/runnables";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { toJsonSchema } from "@langchain/core/utils/json_schema";
import type { ChatOptions, Finished } from "ternlight";
import { type AnswerPart, type ChatPartsOptions, chatParts, randomId } from "ternlight/integration";
import { AnswerChunk, type Call, CallParser, readCalls } from "./calls.ts";
import { type EngineFields, enter, withEngine } from "./engine.ts";
import { type AnswerEvent, eventsOf } from "./events.ts";
import { tokensOf, toMessage } from "./messages.ts";
import { callOptions, fieldOptions, metadataOf, toolChoiceOf, usageOf } from "./options.ts";

/** Every option of `chat`, as far as LangChain has no word of its own for it; and `oneCall`, which ends an answer behind its first call. */
type Options = Omit<ChatPartsOptions, "signal" | "tools" | "toolChoice" | "session">;

/** `model`, and options of every call. */
export interface ChatTernlightFields extends BaseChatModelParams, EngineFields, Options {}

export interface ChatTernlightCallOptions extends BaseChatModelCallOptions, Omit<Options, "stop"> {
  tools?: BindToolsInput[] | undefined;
}

/** With a name, as declarations want it. */
abstract class Base extends BaseChatModel<ChatTernlightCallOptions> {}

export class ChatTernlight extends withEngine(Base) {
  readonly #options: Record<string, unknown>;

  static override lc_name(): string {
    return "ChatTernlight";
  }

  constructor(fields: ChatTernlightFields) {
    super(fields);
    this.#options = fieldOptions(fields);
  }

  _llmType(): string {
    return "ternlight";
  }

  override async getNumTokens(content: MessageContent): Promise<number> {
    return tokensOf(await this.load(), content);
  }

  override invocationParams(options?: this["ParsedCallOptions"]): Record<string, unknown> {
    return { ...this.#chatOptions((options ?? {}) as ChatTernlightCallOptions) };
  }

  override _identifyingParams(): Record<string, unknown> {
    return { model: this.model, ...this.#options };
  }

  override bindTools(
    tools: BindToolsInput[],
    kwargs: Partial<ChatTernlightCallOptions> = {},
  ): Runnable<BaseLanguageModelInput, AIMessageChunk, ChatTernlightCallOptions> {
    return this.withConfig({ tools: tools.map(toTool), ...kwargs } as Partial<ChatTernlightCallOptions>);
  }

  async _generate(messages: BaseMessage[], options: this["ParsedCallOptions"]): Promise<ChatResult> {
    let text = "";
    const calls: Call[] = [];
    let finished: Finished | null = null;
    for await (const part of this.#answer(messages, options)) {
      if (part.type === "text") text += part.text;
      else if (part.type === "call") calls[part.call] = { id: part.id ?? randomId("call"), name: part.name, args: "" };
      else if (part.type === "arguments") calls[part.call]!.args += part.text;
      else finished = part.finished;
    }
    const message = new AIMessage({
      content: text,
      ...readCalls(calls),
      usage_metadata: usageOf(finished!),
      response_metadata: metadataOf(this.model, finished!, calls.length),
    });
    const generation: ChatGeneration = { text, message, generationInfo: message.response_metadata };
    return { generations: [generation], llmOutput: { tokenUsage: tokenUsage(finished!) } };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this["ParsedCallOptions"],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    let calls = 0;
    for await (const part of this.#answer(messages, options)) {
      if (part.type === "call") calls++;
      const message = this.#chunk(part, calls);
      const text = part.type === "text" ? part.text : "";
      const chunk = new ChatGenerationChunk({ text, message, generationInfo: message.response_metadata });
      yield chunk;
      await runManager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
    }
  }

  /** What `streamEvents` gives as version 3, and what graphs ask for. */
  override async *_streamChatModelEvents(
    messages: BaseMessage[],
    options: this["ParsedCallOptions"],
  ): AsyncGenerator<AnswerEvent> {
    yield* eventsOf(this.#answer(messages, options), this.model);
  }

  #chunk(part: AnswerPart, calls: number): AIMessageChunk {
    const type = "tool_call_chunk" as const;
    if (part.type === "text") return new AnswerChunk({ content: part.text });
    if (part.type === "call") {
      const begun = { index: part.call, id: part.id ?? randomId("call"), name: part.name, args: "", type };
      return new AnswerChunk({ content: "", tool_call_chunks: [begun] });
    }
    if (part.type === "arguments")
      return new AnswerChunk({ content: "", tool_call_chunks: [{ index: part.call, args: part.text, type }] });
    const { finished } = part;
    return new AnswerChunk({
      content: "",
      usage_metadata: usageOf(finished),
      response_metadata: metadataOf(this.model, finished, calls),
    });
  }

  async *#answer(messages: BaseMessage[], options: this["ParsedCallOptions"]): AsyncGenerator<AnswerPart, undefined> {
    const { signal } = options as ChatTernlightCallOptions;
    const model = await this.load({ signal });
    const leave = await enter(model, signal);
    try {
      yield* chatParts(model, messages.map(toMessage), {
        ...this.#chatOptions(options as ChatTernlightCallOptions),
        signal,
      });
    } finally {
      leave();
    }
  }

  #chatOptions(options: ChatTernlightCallOptions): ChatOptions {
    const { tools, tool_choice: choice } = options;
    const toolChoice = toolChoiceOf(choice);
    return {
      ...this.#options,
      ...callOptions(options),
      ...(tools?.length && { tools: tools.map(toTool), ...(toolChoice && { toolChoice }) }),
    };
  }

  // biome-ignore lint/suspicious/noExplicitAny: the base class declares each shape of a schema by itself
  override withStructuredOutput(schema: any, config: StructuredOutputMethodOptions<boolean> = {}): any {
    const { name = "extract", method = "jsonSchema", includeRaw } = config;
    const own = toJsonSchema(schema) as { title?: string; description?: string };
    if (method === "functionCalling") {
      const { title, description } = own;
      const called = config.name ?? title ?? name;
      const tool: ToolDefinition = {
        type: "function",
        function: { name: called, ...(description && { description }), parameters: own },
      };
      const llm = this.bindTools([tool], { tool_choice: called, oneCall: true });
      return assembleStructuredOutputPipeline(
        llm,
        createFunctionCallingParser(schema, called, CallParser),
        includeRaw,
        "StructuredOutputRunnable",
      );
    }
    const responseFormat = method === "jsonMode" ? "json" : { type: "json_schema" as const, schema: own };
    const llm = this.withConfig({ responseFormat } as Partial<ChatTernlightCallOptions>);
    return assembleStructuredOutputPipeline(llm, createContentParser(schema), includeRaw, "StructuredOutput");
  }
}

const toTool = (tool: BindToolsInput): ToolDefinition =>
  convertToOpenAITool(tool as Parameters<typeof convertToOpenAITool>[0]);

function tokenUsage(finished: Finished) {
  const { input_tokens: promptTokens, output_tokens: completionTokens, total_tokens: totalTokens } = usageOf(finished);
  return { promptTokens, completionTokens, totalTokens };
}
