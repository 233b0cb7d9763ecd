/** Errors as clients of OpenAI's interface know them, and what each error of the engine is among them. */

import { EngineError } from "../types/errors.ts";
import type { Fault } from "./schema.ts";

export interface ErrorBody {
  error: { message: string; type: string; param: string | null; code: string | null };
}

/** An answer with a status other than 200. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    message: string,
    more: {
      type?: string;
      param?: string | null;
      code?: string | null;
      headers?: Record<string, string>;
      /** Goes to the log, and into no answer. */
      cause?: unknown;
    } = {},
  ) {
    super(message, more.cause === undefined ? {} : { cause: more.cause });
    this.status = status;
    this.type = more.type ?? typeOfStatus(status);
    this.param = more.param ?? null;
    this.code = more.code ?? null;
    this.headers = more.headers ?? {};
  }

  body(): ErrorBody {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

function typeOfStatus(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 404) return "not_found_error";
  if (status === 429) return "rate_limit_error";
  if (status === 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

export const invalid = (param: string | null, message: string, code: string | null = null): ApiError =>
  new ApiError(400, message, { param, code });

export const faulty = ({ param, message }: Fault): ApiError => invalid(param || null, message);

export const noModel = (name: string): ApiError =>
  new ApiError(404, `the model ${JSON.stringify(name)} does not exist`, {
    type: "invalid_request_error",
    param: "model",
    code: "model_not_found",
  });

/** The request fields that options of the engine come from, where they are not the option's name with underscores. */
const FIELDS: Readonly<Record<string, string>> = {
  contextLength: "messages",
  dryLastN: "dry_penalty_last_n",
  dryBreakers: "dry_sequence_breakers",
  dynamicTemperature: "dynatemp_range",
  dynamicExponent: "dynatemp_exponent",
  penaltyLastN: "repeat_last_n",
  repetitionPenalty: "repeat_penalty",
};

/** Errors that are the request's own. */
const REQUEST = ["InvalidArgument", "BadConstraint", "BadTemplate", "MissingTokenizer"];

/**
 * An error of the engine as an answer.
 *
 * @param param the field that holds the prompt
 * @param format the field that holds the format of the answer
 */
export function toApiError(error: unknown, param: string | null, format = "response_format"): ApiError {
  if (error instanceof ApiError) return error;
  if (!(error instanceof EngineError)) return new ApiError(500, "the server failed", { code: "internal" });
  const { code, message, detail } = error;
  if (code === "QueueFull")
    return new ApiError(429, "as many requests wait as may: try again later", { code: "queue_full" });
  if (code === "ContextFull") return invalid(param, message, "context_length_exceeded");
  if (code === "MissingTemplate")
    return invalid(
      param,
      "this model has no chat template: send a prompt to /v1/completions, or start the server with --chat-template",
      "missing_template",
    );
  if (code === "UnsupportedOption" || REQUEST.includes(code)) {
    const field = detail.option === undefined ? param : fieldOf(detail.option, param, format);
    return invalid(
      field,
      inFields(message, detail.option, field),
      code === "InvalidArgument" ? null : underscored(code),
    );
  }
  if (code === "OutOfMemory")
    return new ApiError(503, "there is no memory for this request", {
      code: "out_of_memory",
      headers: retryHeaders(1000),
    });
  if (code === "Closed")
    return new ApiError(503, "the model is being closed", { code: "closed", headers: retryHeaders(1000) });
  return new ApiError(500, "the engine failed", { code: underscored(code) });
}

/** Both headers that clients look for: whole seconds, and milliseconds. */
export const retryHeaders = (ms: number): Record<string, string> => ({
  "retry-after": String(Math.max(1, Math.ceil(ms / 1000))),
  "retry-after-ms": String(Math.ceil(ms)),
});

function fieldOf(option: string, param: string | null, format: string): string | null {
  const [name = ""] = option.split(/[.[]/);
  if (["prompt", "messages", "ids", "text", "texts", "contextLength"].includes(name)) return param;
  if (name === "responseFormat") return format;
  return FIELDS[name] ?? underscored(name);
}

/** A message that names its option, in the words of the request: the field in its place, and no method. */
function inFields(message: string, option: string | undefined, field: string | null): string {
  if (option === undefined || field === null) return message;
  const at = message.indexOf(option);
  const named = at >= 0 && /^(?:option |\w+: )?$/.test(message.slice(0, at));
  return named ? field + message.slice(at + option.length) : message;
}

const underscored = (name: string): string =>
  name.replace(/[A-Z]/g, (letter, at) => `${at > 0 ? "_" : ""}${letter.toLowerCase()}`);
