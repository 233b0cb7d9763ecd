/** An embedding model of the AI SDK's specification V3. */

import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { EmbedOptions, Model } from "ternlight";
import type { LazyAvailability, LazyModel, LoadCall } from "ternlight/integration";

export interface TernlightEmbeddingModel extends EmbeddingModelV3 {
  /** Whether the model can embed here, and whether something has to be downloaded for it. */
  availability(): Promise<LazyAvailability>;
  /** Loads the model ahead of its first call. */
  load(call?: LoadCall): Promise<Model>;
  /** Gives the model's memory back. The next call loads it again. A model that was given loaded stays open. */
  close(): Promise<void>;
}

export function embeddingModel(handle: LazyModel): TernlightEmbeddingModel {
  return {
    specificationVersion: "v3",
    provider: "ternlight",
    modelId: handle.name,
    // The engine computes as many at once as fit into a batch.
    maxEmbeddingsPerCall: undefined,
    supportsParallelCalls: true,
    async doEmbed({ values, abortSignal: signal, providerOptions }) {
      const model = await handle.model({ signal });
      const options = (providerOptions?.ternlight ?? {}) as EmbedOptions;
      const [rows, counts] = await Promise.all([
        model.embed(values, { ...options, signal }),
        Promise.all(values.map((value) => model.countTokens(value))),
      ]);
      return {
        embeddings: rows.map((row) => Array.from(row)),
        usage: { tokens: counts.reduce((sum, count) => sum + count, 0) },
        warnings: [],
      };
    },
    availability: handle.availability,
    load: handle.model,
    close: handle.close,
  };
}
