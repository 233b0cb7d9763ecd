/** Embeddings of LangChain. */

import { Embeddings, type EmbeddingsParams } from "@langchain/core/embeddings";
import type { EmbedOptions } from "ternlight";
import { type EngineFields, withEngine } from "./engine.ts";

export interface TernlightEmbeddingsFields extends EmbeddingsParams, EngineFields, Omit<EmbedOptions, "signal"> {
  /** Put before each query, where the model was trained with an instruction. @default nothing */
  queryPrefix?: string | undefined;
}

/** Texts of one call to the engine. */
const PART = 64;

export class TernlightEmbeddings extends withEngine(Embeddings) {
  readonly #options: EmbedOptions;
  readonly #queryPrefix: string;

  constructor(fields: TernlightEmbeddingsFields) {
    super(fields);
    const { pooling, normalize, adapters, queryPrefix = "" } = fields;
    this.#options = { pooling, normalize, adapters };
    this.#queryPrefix = queryPrefix;
  }

  async embedDocuments(documents: string[]): Promise<number[][]> {
    const model = await this.load();
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
