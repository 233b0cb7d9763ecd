/** A model of LangChain that continues texts. */

import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import { BaseLLM, type BaseLLMCallOptions, type BaseLLMParams } from "@langchain/core/language_models/llms";
import { GenerationChunk, type LLMResult } from "@langchain/core/outputs";
import type { Finished, GenerateOptions, Model } from "ternlight";
import type { LazyAvailability, LoadCall } from "ternlight/integration";
import { Engine, type EngineFields, enter, inPlace } from "./engine.ts";
import { callOptions, fieldOptions, metadataOf, usageOf } from "./options.ts";

type Options = Omit<GenerateOptions, "signal">;

/** `model`, and options of every call. */
export interface TernlightLLMFields extends BaseLLMParams, EngineFields, Options {}

export interface TernlightLLMCallOptions extends BaseLLMCallOptions, Omit<Options, "stop"> {}

export class TernlightLLM extends BaseLLM<TernlightLLMCallOptions> {
  readonly #engine: Engine;
  readonly #options: Record<string, unknown>;

  static override lc_name(): string {
    return "TernlightLLM";
  }

  constructor(fields: TernlightLLMFields) {
    super(fields);
    this.#engine = new Engine(fields);
    this.#options = fieldOptions(fields);
  }

  _llmType(): string {
    return "ternlight";
  }

  /** The source's address or the model's name. */
  get model(): string {
    return this.#engine.name;
  }

  /** Loads the model ahead of its first call. */
  load(call?: LoadCall): Promise<Model> {
    return this.#engine.load(call);
  }

  /** Whether the model can answer here, and whether something has to be downloaded for it. */
  availability(): Promise<LazyAvailability> {
    return this.#engine.availability();
  }

  /** Gives the model's memory back; one that was given loaded stays open. */
  close(): Promise<void> {
    return this.#engine.close();
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
    const model = await this.#engine.load({ signal });
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
    const model = await this.#engine.load({ signal });
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
