/** Requests about token ids and adapters, in the dialects of llama-server and vLLM. */

import type { Schema } from "./schema.ts";

const flag = { type: ["boolean", "null"] } as const;
const named = { type: ["string", "null"] } as const;
const ids: Schema = { type: "array", items: { type: "integer", minimum: 0, maximum: 2 ** 31 - 1 } };

export const tokenizing: Schema = {
  type: "object",
  properties: {
    model: named,
    content: named,
    prompt: named,
    messages: { type: ["array", "null"] },
    add_special: flag,
    add_special_tokens: flag,
    add_generation_prompt: flag,
    // A text is the caller's own: special tokens in it count.
    parse_special: { ...flag, enum: [true] },
    with_pieces: flag,
    return_token_strs: flag,
  },
};
export const detokenizing: Schema = { type: "object", required: ["tokens"], properties: { model: named, tokens: ids } };

export const loading: Schema = {
  type: "object",
  required: ["lora_name", "lora_path"],
  properties: {
    lora_name: { type: "string", maxLength: 200 },
    lora_path: { type: "string", maxLength: 4096 },
    base_model_name: { type: ["string", "null"] },
    load_inplace: { type: ["boolean", "null"] },
  },
};

export const unloading: Schema = {
  type: "object",
  required: ["lora_name"],
  properties: { lora_name: { type: "string", maxLength: 200 } },
};

/** llama-server's: adapters by their numbers, with the scales that all requests use. */
export const scales: Schema = {
  type: "array",
  items: {
    type: "object",
    required: ["id", "scale"],
    properties: { id: { type: "integer", minimum: 0 }, scale: { type: "number", minimum: -1000, maximum: 1000 } },
  },
};
