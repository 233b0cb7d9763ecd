/** Lines of a batch: requests one a line, in OpenAI's shape or as plain prompts, and the lines that answer them. Pure. */

import { show } from "../options/show.ts";
import { ApiError, invalid } from "./errors.ts";

/** What a line may ask for. */
export const ENDPOINTS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

/** Characters of a custom_id at most. */
const MAX_ID = 512;

export interface BatchRequest {
  url: Endpoint;
  body: Record<string, unknown>;
}

export interface BatchLine {
  /** The line's own, or `line-1` for the first line. */
  customId: string;
  request: BatchRequest | ApiError;
}

type Fields = Record<string, unknown>;
const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Reads a line: `{custom_id, method, url, body}`, or a plain `{prompt}` or `{messages}` with further fields of a request.
 *
 * @param index of the line, from 0; a line without a seed gets one from it, so that its answer does not depend on when it is asked for
 */
export function readBatchLine(text: string, index: number): BatchLine {
  const byDefault = `line-${index + 1}`;
  let fields: unknown;
  try {
    fields = JSON.parse(text);
  } catch {
    // Runtimes word the reason in different ways, and answers are the same everywhere.
    return { customId: byDefault, request: invalid(null, "the line is not JSON", "invalid_json_line") };
  }
  if (!isObject(fields)) return { customId: byDefault, request: wrong(null, "the line", "an object", fields) };
  const { custom_id: id = byDefault } = fields;
  const named = typeof id === "string" && id.length <= MAX_ID;
  const customId = named ? id : byDefault;
  try {
    if (!named) throw wrong("custom_id", "custom_id", `a text of at most ${MAX_ID} characters`, id);
    return { customId, request: seeded(requestOf(fields), index) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { customId, request: error };
  }
}

const wrong = (param: string | null, what: string, expected: string, found: unknown): ApiError =>
  invalid(param, `${what} must be ${expected}, not ${show(found)}`, "invalid_line");

function requestOf(fields: Fields): BatchRequest {
  const { custom_id: _, method = "POST", url, body, ...rest } = fields;
  if (url === undefined && body === undefined) return plain(rest);
  if (method !== "POST") throw wrong("method", "method", '"POST"', method);
  const known = ENDPOINTS.find((one) => one === url);
  if (known === undefined) throw wrong("url", "url", ENDPOINTS.join(" or "), url);
  if (!isObject(body)) throw wrong("body", "body", "an object", body);
  return { url: known, body };
}

function plain(fields: Fields): BatchRequest {
  if (fields.messages !== undefined) return { url: "/v1/chat/completions", body: fields };
  if (fields.prompt !== undefined) return { url: "/v1/completions", body: fields };
  throw invalid("url", "the line has neither url and body, nor prompt, nor messages", "invalid_line");
}

/** The n answers of a line have seeds that no other line of as many answers has. */
function seeded({ url, body }: BatchRequest, index: number): BatchRequest {
  if (body.stream === true) throw invalid("stream", "the answers of a batch are not streamed: leave stream out");
  if (url === "/v1/embeddings" || (body.seed !== undefined && body.seed !== null)) return { url, body };
  const n = Number.isInteger(body.n) ? (body.n as number) : 1;
  return { url, body: { ...body, seed: index * Math.max(1, n) } };
}

export interface BatchReply {
  /** What ids are made of. */
  token: string;
  customId: string;
  status: number;
  body: unknown;
}

/** The line that answers a request. */
export const replyLine = ({ token, customId, status, body }: BatchReply): string =>
  JSON.stringify({
    id: `batch_req_${token}`,
    custom_id: customId,
    response: { status_code: status, request_id: `req_${token}`, body },
    error: null,
  });

/** The line of a request that was not worked on. */
export const unansweredLine = (token: string, customId: string, code: string, message: string): string =>
  JSON.stringify({ id: `batch_req_${token}`, custom_id: customId, response: null, error: { code, message } });

/** Takes out of an answer what depends on the machine and on other requests: times, and what was found computed. */
export function settled(body: unknown): unknown {
  if (!isObject(body)) return body;
  const { timings: _, ...rest } = body;
  if (!isObject(rest.usage)) return rest;
  const usage: Fields = { ...rest.usage };
  for (const name of ["prompt_tokens_details", "input_tokens_details"]) {
    if (isObject(usage[name])) usage[name] = { ...usage[name], cached_tokens: 0 };
  }
  return { ...rest, usage };
}
