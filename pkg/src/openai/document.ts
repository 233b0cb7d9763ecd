/** The OpenAPI document: what the server takes, by the schemas that it checks with, and what it answers. */

import { batchRequest, fileRequest } from "./batches.ts";
import { chatRequest } from "./chat.ts";
import { completionRequest } from "./completions.ts";
import { embeddingRequest } from "./embeddings.ts";
import { countRequest, messagesRequest } from "./messages.ts";
import { responsesRequest } from "./responses.ts";
import type { Schema } from "./schema.ts";

const text: Schema = { type: "string" };
const whole: Schema = { type: "integer", minimum: 0 };
const number: Schema = { type: "number" };
const list = (items: Schema): Schema => ({ type: "array", items });
const orNull = (schema: Schema): Schema => ({ anyOf: [schema, { type: "null" }] });
const one = (value: string): Schema => ({ type: "string", enum: [value] });

/** An object of which every field is there, but for those whose names end in a question mark. */
function object(fields: Readonly<Record<string, Schema>>): Schema {
  const names = Object.keys(fields);
  return {
    type: "object",
    required: names.filter((name) => !name.endsWith("?")),
    properties: Object.fromEntries(names.map((name) => [name.replace("?", ""), fields[name]!])),
  };
}

const tokenLogprob = { token: text, logprob: number, bytes: orNull(list(whole)) };
const chatLogprobs = object({
  content: orNull(list(object({ ...tokenLogprob, top_logprobs: list(object(tokenLogprob)) }))),
  refusal: { type: "null" },
});
const textLogprobs = object({
  tokens: list(text),
  // The first token of a prompt has none.
  token_logprobs: list({ type: ["number", "null"] }),
  top_logprobs: list(orNull({ type: "object", additionalProperties: number })),
  text_offset: list(whole),
});

const usage = object({
  prompt_tokens: whole,
  completion_tokens: whole,
  total_tokens: whole,
  prompt_tokens_details: object({ cached_tokens: whole, audio_tokens: whole }),
  completion_tokens_details: { type: "object", additionalProperties: whole },
});
const common = (kind: string) => ({
  id: text,
  object: one(kind),
  created: whole,
  model: text,
  system_fingerprint: text,
  usage,
  timings: { type: "object", additionalProperties: number } as Schema,
});

const call = object({ id: text, type: one("function"), function: object({ name: text, arguments: text }) });
const chatReply = object({
  ...common("chat.completion"),
  choices: list(
    object({
      index: whole,
      message: object({
        role: one("assistant"),
        content: { type: ["string", "null"] },
        refusal: { type: "null" },
        "tool_calls?": list(call),
      }),
      logprobs: orNull(chatLogprobs),
      finish_reason: { type: "string", enum: ["stop", "length", "tool_calls"] },
    }),
  ),
});
const completionReply = object({
  ...common("text_completion"),
  choices: list(
    object({
      index: whole,
      text,
      logprobs: orNull(textLogprobs),
      finish_reason: { type: "string", enum: ["stop", "length"] },
    }),
  ),
});
const embeddingReply = object({
  object: one("list"),
  model: text,
  data: list(object({ object: one("embedding"), index: whole, embedding: { anyOf: [list(number), text] } })),
  usage: object({ prompt_tokens: whole, total_tokens: whole }),
});
const modelEntry = object({ id: text, object: one("model"), created: whole, owned_by: text, "parent?": text });
const error = object({
  error: object({
    message: text,
    type: text,
    param: { type: ["string", "null"] },
    code: { type: ["string", "null"] },
  }),
});
const anthropicError = object({ type: one("error"), error: object({ type: text, message: text }) });

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

const time = { type: ["integer", "null"] } as const satisfies Schema;
const fileObject = object({
  id: text,
  object: one("file"),
  bytes: whole,
  created_at: whole,
  filename: text,
  purpose: { type: "string", enum: ["batch", "batch_output"] },
  status: one("processed"),
});
const batchFault = object({ code: text, message: text, param: { type: ["string", "null"] }, line: time });
const batchObject = object({
  id: text,
  object: one("batch"),
  endpoint: text,
  model: { type: ["string", "null"] },
  errors: orNull(object({ object: one("list"), data: list(batchFault) })),
  input_file_id: text,
  completion_window: text,
  status: {
    type: "string",
    enum: ["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"],
  },
  output_file_id: { type: ["string", "null"] },
  error_file_id: { type: ["string", "null"] },
  created_at: whole,
  in_progress_at: time,
  expires_at: whole,
  finalizing_at: time,
  completed_at: time,
  failed_at: time,
  expired_at: time,
  cancelling_at: time,
  cancelled_at: time,
  request_counts: object({ total: whole, completed: whole, failed: whole }),
  metadata: orNull({ type: "object", additionalProperties: text }),
});
const page = (item: Schema) =>
  object({
    object: one("list"),
    data: list(item),
    first_id: { type: ["string", "null"] },
    last_id: { type: ["string", "null"] },
    has_more: { type: "boolean" },
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
const any: Schema = { type: "object" };

export const document = (version: string) => ({
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
    "/v1/responses": post("Answers without state.", "createResponse", any, { streams: true }),
    "/v1/messages": post("Answers in Anthropic's interface.", "createMessage", any, {
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
    "/health": get("Whether the server is ready.", "health", any),
    "/version": get("The version of the server.", "version", object({ version: text })),
  },
  components: {
    schemas: {
      createChatCompletion: chatRequest,
      createCompletion: completionRequest,
      createEmbedding: embeddingRequest,
      createResponse: responsesRequest,
      createMessage: messagesRequest,
      countTokens: countRequest,
      createFile: fileRequest,
      createBatch: batchRequest,
    },
    securitySchemes: { key: { type: "http", scheme: "bearer" } },
  },
});
