/** A model of LangChain that continues texts. */

import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import { BaseLLM, type BaseLLMCallOptions, type BaseLLMParams } from "@langchain/core/language_models/llms";
import type { MessageContent } from "@langchain/core/messages";
import { GenerationChunk, type LLMResult } from "@langchain/core/outputs";
import type { Finished, GenerateOptions } from "ternlight";
import { type EngineFields, enter, inPlace, withEngine } from "./engine.ts";
import { tokensOf } from "./messages.ts";
import { callOptions, fieldOptions, metadataOf, usageOf } from "./options.ts";

type Options = Omit<GenerateOptions, "signal">;

/** `model`, and options of every call. */
export interface TernlightLLMFields extends BaseLLMParams, EngineFields, Options {}

export interface TernlightLLMCallOptions extends BaseLLMCallOptions, Omit<Options, "stop"> {}

/** With a name, as declarations want it. */
abstract class Base extends BaseLLM<TernlightLLMCallOptions> {}

export class TernlightLLM extends withEngine(Base) {
  readonly #options: Record<string, unknown>;

  static override lc_name(): string {
    return "TernlightLLM";
  }

  constructor(fields: TernlightLLMFields) {
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
    return { ...this.#options, ...callOptions(options ?? {}) };
  }

  override _identifyingParams(): Record<string, unknown> {
    return { model: this.model, ...this.#options };
  }

  /** All prompts at once, as far as the engine's batch has places. */
  async _generate(prompts: string[], options: this["ParsedCallOptions"]): Promise<LLMResult> {
    const { signal } = options as TernlightLLMCallOptions;
    const model = await this.load({ signal });
    const given = { ...this.invocationParams(options), signal };
    const one = (prompt: string) => inPlace(model, signal, () => model.generate(prompt, given).finished);
    const finished = await Promise.all(prompts.map(one));
    return {
      generations: finished.map((each) => [{ text: each.text, generationInfo: metadataOf(this.model, each) }]),
      llmOutput: { tokenUsage: summed(finished) },
    };
  }

  override async *_streamResponseChunks(
    prompt: string,
    options: this["ParsedCallOptions"],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<GenerationChunk> {
    const { signal } = options as TernlightLLMCallOptions;
    const model = await this.load({ signal });
    const leave = await enter(model, signal);
    try {
      const generation = model.generate(prompt, { ...this.invocationParams(options), signal });
      for await (const { text } of generation) {
        if (text === "") continue;
        yield new GenerationChunk({ text });
        await runManager?.handleLLMNewToken(text);
      }
      yield new GenerationChunk({ text: "", generationInfo: metadataOf(this.model, await generation.finished) });
    } finally {
      leave();
    }
  }
}

function summed(all: readonly Finished[]) {
  const usages = all.map(usageOf);
  const sum = (key: "input_tokens" | "output_tokens" | "total_tokens") =>
    usages.reduce((total, usage) => total + usage[key], 0);
  return {
    promptTokens: sum("input_tokens"),
    completionTokens: sum("output_tokens"),
    totalTokens: sum("total_tokens"),
  };
}
