/** POST /v1/embeddings: the request, and vectors as base64. */

import type { Prompt } from "../types/index.ts";
import { ids, promptsOf } from "./completions.ts";
import { faulty } from "./errors.ts";
import { choice, ignored, model, text, texts } from "./fields.ts";
import { check, type Schema } from "./schema.ts";

export const embeddingRequest: Schema = {
  type: "object",
  required: ["model", "input"],
  properties: {
    model,
    input: {
      anyOf: [
        text,
        { ...texts, minItems: 1, maxItems: 2048 },
        { ...ids, maxItems: 2048 },
        { type: "array", minItems: 1, maxItems: 2048, items: ids },
      ],
    },
    encoding_format: choice("float", "base64"),
    dimensions: {
      type: ["integer", "null"],
      minimum: 1,
      description: "The model's own width; any other number is refused.",
    },
    user: ignored({ type: ["string", "null"] }, "It is not kept."),
  },
};

export interface EmbeddingAsk {
  model: string;
  input: Prompt[];
  base64: boolean;
  dimensions: number | null;
}

export function readEmbedding(body: unknown): EmbeddingAsk {
  const fault = check(embeddingRequest, body);
  if (fault) throw faulty(fault);
  const { model, input, encoding_format, dimensions } = body as {
    model: string;
    input: string | string[] | number[] | number[][];
    encoding_format?: string | null;
    dimensions?: number | null;
  };
  return {
    model,
    input: promptsOf(input, "input"),
    base64: encoding_format === "base64",
    dimensions: dimensions ?? null,
  };
}

/** Little-endian f32 values, as clients read them. */
export function toBase64(row: Float32Array): string {
  const bytes = new Uint8Array(row.length * 4);
  const view = new DataView(bytes.buffer);
  for (const [i, value] of row.entries()) view.setFloat32(4 * i, value, true);
  let text = "";
  // `fromCharCode` takes so many arguments at once.
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}
