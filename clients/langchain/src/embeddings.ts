/** Embeddings of LangChain. */

import { Embeddings, type EmbeddingsParams } from "@langchain/core/embeddings";
import type { EmbedOptions, Model } from "ternlight";
import type { LazyAvailability, LoadCall } from "ternlight/integration";
import { Engine, type EngineFields } from "./engine.ts";

export interface TernlightEmbeddingsFields extends EmbeddingsParams, EngineFields, Omit<EmbedOptions, "signal"> {
  /** Put before each query, where the model was trained with an instruction. @default nothing */
  queryPrefix?: string | undefined;
}

/** Texts of one call to the engine. */
const PART = 64;

export class TernlightEmbeddings extends Embeddings {
  readonly #engine: Engine;
  readonly #options: EmbedOptions;
  readonly #queryPrefix: string;

  constructor({
    model,
    loadOptions,
    pooling,
    normalize,
    adapters,
    queryPrefix = "",
    ...params
  }: TernlightEmbeddingsFields) {
    super(params);
    this.#engine = new Engine({ model, loadOptions });
    this.#options = { pooling, normalize, adapters };
    this.#queryPrefix = queryPrefix;
  }

  /** The source's address or the model's name. */
  get model(): string {
    return this.#engine.name;
  }

  /** Loads the model ahead of its first call. */
  load(call?: LoadCall): Promise<Model> {
    return this.#engine.load(call);
  }

  /** Whether the model can embed here, and whether something has to be downloaded for it. */
  availability(): Promise<LazyAvailability> {
    return this.#engine.availability();
  }

  /** Gives the model's memory back; one that was given loaded stays open. */
  close(): Promise<void> {
    return this.#engine.close();
  }

  async embedDocuments(documents: string[]): Promise<number[][]> {
    const model = await this.#engine.load();
    const rows: number[][] = [];
    for (let at = 0; at < documents.length; at += PART) {
      const part = await model.embed(documents.slice(at, at + PART), this.#options);
      rows.push(...part.map((row) => Array.from(row)));
    }
    return rows;
  }

  async embedQuery(document: string): Promise<number[]> {
    const [row] = await this.embedDocuments([this.#queryPrefix + document]);
    return row!;
  }
}
