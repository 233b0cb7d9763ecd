/** The OpenAPI document: what the server takes, by the schemas that it checks with, and what it answers. */

import { batchRequest, fileRequest } from "./batches.ts";
import { chatRequest } from "./chat.ts";
import { completionRequest } from "./completions.ts";
import {
  anthropicError,
  any,
  batchObject,
  chatReply,
  completionReply,
  embeddingReply,
  error,
  fileObject,
  flag,
  list,
  messageReply,
  modelEntry,
  number,
  object,
  one,
  page,
  responseReply,
  text,
  whole,
} from "./described.ts";
import { embeddingRequest } from "./embeddings.ts";
import { countRequest, messagesRequest } from "./messages.ts";
import { responsesRequest } from "./responses.ts";
import type { Schema } from "./schema.ts";
import { detokenizing, loading, scales, tokenizing, unloading } from "./tokens.ts";

const content = (schema: Schema) => ({ "application/json": { schema } });

const REASONS: Readonly<Record<string, string>> = {
  400: "The request is wrong; `param` names the field.",
  401: "The key is missing or wrong.",
  403: "The Host header is none of the server's.",
  404: "There is no such model, file or batch.",
  408: "The body did not come in time.",
  413: "The body is too large.",
  415: "A page sent another type than JSON.",
  429: "The queue is full; `Retry-After` says when to try again.",
  500: "The engine failed.",
  503: "The model is being loaded, or the server is being stopped.",
};

const errors = (schema: Schema, statuses = Object.keys(REASONS)) =>
  Object.fromEntries(statuses.map((status) => [status, { description: REASONS[status], content: content(schema) }]));

function post(summary: string, name: string, reply: Schema, { streams = false, failure = error } = {}) {
  const events = streams ? { "text/event-stream": { schema: text } } : {};
  return {
    post: {
      operationId: name,
      summary,
      requestBody: { required: true, content: content({ $ref: `#/components/schemas/${name}` } as Schema) },
      responses: {
        200: { description: "The answer.", content: { ...content(reply), ...events } },
        ...errors(failure),
      },
    },
  };
}

const get = (summary: string, operationId: string, reply: Schema, more: object = {}) => ({
  get: {
    operationId,
    summary,
    ...more,
    responses: {
      200: { description: summary, content: content(reply) },
      ...errors(error, ["401", "403", "404", "503"]),
    },
  },
});

const inPath = { name: "id", in: "path", required: true, schema: text };
const query = (...names: string[]) => names.map((name) => ({ name, in: "query", schema: text }));
const asked = { parameters: [inPath] };

const uploads = post("Takes a file of requests.", "createFile", fileObject).post;
const form = { "multipart/form-data": { schema: { $ref: "#/components/schemas/createFile" } } };
const { requestBody: _, ...cancelling } = post(
  "Ends a batch; its results so far become files.",
  "cancelBatch",
  batchObject,
).post;
const reading = get("The bytes of a file.", "downloadFile", text, asked).get;
const raw = { description: "The bytes.", content: { "application/octet-stream": { schema: text } } };

/** Files and batches, where the server keeps any. */
const batchPaths = {
  "/v1/files": {
    post: { ...uploads, requestBody: { required: true, content: form } },
    ...get("The files, newest first.", "listFiles", page(fileObject), {
      parameters: query("purpose", "limit", "after", "order"),
    }),
  },
  "/v1/files/{id}": {
    ...get("One file.", "retrieveFile", fileObject, asked),
    delete: get(
      "Deletes a file.",
      "deleteFile",
      object({ id: text, object: one("file"), deleted: { type: "boolean" } }),
      asked,
    ).get,
  },
  "/v1/files/{id}/content": { get: { ...reading, responses: { ...reading.responses, 200: raw } } },
  "/v1/batches": {
    ...post("Begins a batch.", "createBatch", batchObject),
    ...get("The batches, newest first.", "listBatches", page(batchObject), { parameters: query("limit", "after") }),
  },
  "/v1/batches/{id}": get("One batch.", "retrieveBatch", batchObject, asked),
  "/v1/batches/{id}/cancel": { post: { ...cancelling, ...asked } },
};

const named = { parameters: [{ name: "model", in: "path", required: true, schema: text }] };
const said = { content: { "text/plain": { schema: text } } };

const ready = (summary: string, name: string) => {
  const { get: one } = get(summary, name, object({ status: text, "health?": text, "models?": any }));
  const { 200: fine, 503: waits } = one.responses as Record<string, object>;
  return { get: { ...one, security: [], responses: { 200: fine, 503: waits } } };
};
const ofModel = { parameters: query("model") };
const adapterEntry = object({ id: whole, path: text, scale: number });
const plain = (summary: string, name: string) => {
  const { post: one } = post(summary, name, text);
  return { post: { ...one, responses: { ...one.responses, 200: { description: "What was done.", ...said } } } };
};

/** What clients of llama-server and vLLM ask for besides, and what operators do. */
const otherPaths = {
  "/tokenize": post(
    "Token ids of a text or of messages.",
    "tokenize",
    object({
      tokens: list({ anyOf: [whole, object({ id: whole, piece: { anyOf: [text, list(whole)] } })] }),
      count: whole,
      max_model_len: whole,
      "token_strs?": list(text),
    }),
  ),
  "/detokenize": post("The text of token ids.", "detokenize", object({ content: text, prompt: text })),
  "/apply-template": post("Messages as the prompt that they become.", "applyTemplate", object({ prompt: text })),
  "/tokenizer_info": get(
    "Special tokens and the chat template.",
    "tokenizerInfo",
    object({
      ...Object.fromEntries(
        ["bos", "eos", "pad", "unk"].map((name) => [`${name}_token`, { type: ["string", "null"] } as const]),
      ),
      chat_template: { type: ["string", "null"] },
      model_max_length: whole,
      vocab_size: whole,
    }),
    ofModel,
  ),
  "/lora-adapters": {
    ...get("The adapters of the first model, by number.", "listAdapters", list(adapterEntry)),
    ...post("Sets the scales that all requests use.", "scaleAdapters", list(adapterEntry)),
  },
  "/v1/load_lora_adapter": plain("Loads an adapter.", "loadAdapter"),
  "/v1/unload_lora_adapter": plain("Unloads an adapter.", "unloadAdapter"),
  "/health": ready("Whether the server is ready, and how well its models are.", "health"),
  "/readyz": ready("Whether the server is ready.", "ready"),
  "/livez": { get: { ...get("Whether the server lives.", "live", object({ status: one("ok") })).get, security: [] } },
  "/status": get(
    "What the models do.",
    "status",
    object({ active: whole, models: list(object({ name: text, state: text })) }),
  ),
  "/slots": get(
    "Places of a model, and whether each is taken.",
    "slots",
    list(object({ id: whole, n_ctx: whole, is_processing: flag })),
    ofModel,
  ),
  "/props": get(
    "What a model is.",
    "props",
    object({
      default_generation_settings: any,
      total_slots: whole,
      model_alias: text,
      chat_template: text,
      bos_token: text,
      eos_token: text,
      modalities: any,
      build_info: text,
      is_sleeping: flag,
    }),
    ofModel,
  ),
  "/metrics": (() => {
    const { get: one } = get("Metrics for Prometheus.", "metrics", text, { parameters: query("dialect") });
    return { get: { ...one, responses: { ...one.responses, 200: { description: "Samples.", ...said } } } };
  })(),
  "/version": get("The version of the server.", "version", object({ version: text })),
  "/openapi.json": get("This document.", "document", any),
};

const requests: Readonly<Record<string, Schema>> = {
  createChatCompletion: chatRequest,
  createCompletion: completionRequest,
  createEmbedding: embeddingRequest,
  createResponse: responsesRequest,
  createMessage: messagesRequest,
  countTokens: countRequest,
  createFile: fileRequest,
  createBatch: batchRequest,
  tokenize: tokenizing,
  detokenize: detokenizing,
  applyTemplate: tokenizing,
  scaleAdapters: scales,
  loadAdapter: loading,
  unloadAdapter: unloading,
};

/** What is described depends on the server: whether it asks for keys, and whether it has one model alone. */
export interface Described {
  keys?: boolean;
  one?: boolean;
}

/** A request that need not name its model. */
function withoutName(schema: Schema): Schema {
  const { required, properties } = schema;
  if (!required?.includes("model")) return schema;
  const model = { ...properties!.model, type: ["string", "null"] } as const;
  return { ...schema, required: required.filter((name) => name !== "model"), properties: { ...properties, model } };
}

export const document = (version: string, { keys = false, one: alone = false }: Described = {}) => ({
  openapi: "3.1.0",
  info: { title: "ternlight serve", version: version || "0", license: { name: "MIT OR Apache-2.0" } },
  paths: {
    "/v1/models": get(
      "The models that are served.",
      "listModels",
      object({ object: one("list"), data: list(modelEntry) }),
    ),
    "/v1/models/{model}": get("One model.", "retrieveModel", modelEntry, named),
    "/v1/chat/completions": post("Answers messages.", "createChatCompletion", chatReply, { streams: true }),
    "/v1/completions": post("Continues texts.", "createCompletion", completionReply, { streams: true }),
    "/v1/embeddings": post("Computes embeddings.", "createEmbedding", embeddingReply),
    "/v1/responses": post("Answers without state.", "createResponse", responseReply, { streams: true }),
    "/v1/messages": post("Answers in Anthropic's interface.", "createMessage", messageReply, {
      streams: true,
      failure: anthropicError,
    }),
    "/v1/messages/count_tokens": post(
      "Counts the tokens of messages.",
      "countTokens",
      object({ input_tokens: whole }),
      {
        failure: anthropicError,
      },
    ),
    ...batchPaths,
    ...otherPaths,
  },
  // Without keys a client may send one all the same.
  security: keys ? [{ key: [] }, { header: [] }] : [{}, { key: [] }, { header: [] }],
  components: {
    schemas: Object.fromEntries(
      Object.entries(requests).map(([name, schema]) => [name, alone ? withoutName(schema) : schema]),
    ),
    securitySchemes: {
      key: { type: "http", scheme: "bearer" },
      header: { type: "apiKey", in: "header", name: "x-api-key" },
    },
  },
});
