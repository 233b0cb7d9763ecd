import {
  type EmbeddingModelV3,
  type ImageModelV3,
  type LanguageModelV3,
  NoSuchModelError,
  type ProviderV3,
} from "@ai-sdk/provider";
import { cache, canRun, type LoadOptions, load } from "ternlight";
import { type LoadTools, lazyModel, type SourceOrModel } from "ternlight/integration";
import { embeddingModel, type TernlightEmbeddingModel } from "./embedding_model.ts";
import { languageModel, type TernlightLanguageModel } from "./language_model.ts";

/** Models for the AI SDK: of a source, or of a model that is loaded. Equal sources and options share one load. */
export interface Ternlight extends ProviderV3 {
  /** The same as `languageModel`. */
  (source: SourceOrModel, loadOptions?: LoadOptions): TernlightLanguageModel;
  /**
   * @param source as `load` of ternlight takes it, or what that has loaded
   * @param loadOptions as of `load`
   */
  languageModel(source: SourceOrModel, loadOptions?: LoadOptions): TernlightLanguageModel;
  embeddingModel(source: SourceOrModel, loadOptions?: LoadOptions): TernlightEmbeddingModel;
  /** The name that earlier versions of the AI SDK have for `embeddingModel`. */
  textEmbeddingModel(source: SourceOrModel, loadOptions?: LoadOptions): TernlightEmbeddingModel;
}

/** What a provider works with instead of the functions of `ternlight`. */
export interface TernlightSettings extends Partial<LoadTools> {
  /** Options of every load, unless a model has its own. @default none */
  loadOptions?: LoadOptions | undefined;
}

/**
 * Makes a provider with settings of its own.
 *
 * @param settings `load` and `canRun` of `ternlight/edge` for an edge worker, and options of every load
 */
export function createTernlight({ loadOptions, ...given }: TernlightSettings = {}): Ternlight {
  const tools: LoadTools = { load, canRun, cache, ...given };
  const handle = (source: SourceOrModel, own?: LoadOptions) => lazyModel(tools, source, { ...loadOptions, ...own });
  const language = (source: SourceOrModel, own?: LoadOptions) => languageModel(handle(source, own));
  const embedding = (source: SourceOrModel, own?: LoadOptions) => embeddingModel(handle(source, own));
  const provider = (source: SourceOrModel, own?: LoadOptions) => language(source, own);
  return Object.assign(provider, {
    specificationVersion: "v3" as const,
    languageModel: language as Ternlight["languageModel"] & ((modelId: string) => LanguageModelV3),
    embeddingModel: embedding as Ternlight["embeddingModel"] & ((modelId: string) => EmbeddingModelV3),
    textEmbeddingModel: embedding,
    imageModel(modelId: string): ImageModelV3 {
      throw new NoSuchModelError({ modelId, modelType: "imageModel" });
    },
  });
}

/** The provider of models that run in this program. */
export const ternlight: Ternlight = createTernlight();
