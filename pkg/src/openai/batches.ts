/** Files and batches as clients of OpenAI's interface know them: their objects, what makes one, and what a batch's input must be. Pure. */

import { show } from "../options/show.ts";
import { ENDPOINTS, type Endpoint, readBatchLine } from "./batch.ts";
import { ApiError, faulty, invalid } from "./errors.ts";
import { orNull, refused, text } from "./fields.ts";
import { check, type Schema } from "./schema.ts";

export interface FileObject {
  id: string;
  object: "file";
  bytes: number;
  /** Unix seconds, as all times here. */
  created_at: number;
  filename: string;
  purpose: "batch" | "batch_output";
  status: "processed";
}

export type BatchStatus =
  | "validating"
  | "failed"
  | "in_progress"
  | "finalizing"
  | "completed"
  | "expired"
  | "cancelling"
  | "cancelled";

/** States that a batch does not leave. */
export const ENDED: readonly BatchStatus[] = ["failed", "completed", "expired", "cancelled"];

/** What is wrong with a batch's input. */
export interface BatchFault {
  code: string;
  message: string;
  param: string | null;
  /** From 1; blank lines do not count. */
  line: number | null;
}

export interface Batch {
  id: string;
  object: "batch";
  endpoint: Endpoint;
  /** Known when the input was read. */
  model: string | null;
  errors: { object: "list"; data: BatchFault[] } | null;
  input_file_id: string;
  completion_window: string;
  status: BatchStatus;
  output_file_id: string | null;
  error_file_id: string | null;
  created_at: number;
  in_progress_at: number | null;
  expires_at: number;
  finalizing_at: number | null;
  completed_at: number | null;
  failed_at: number | null;
  expired_at: number | null;
  cancelling_at: number | null;
  cancelled_at: number | null;
  request_counts: { total: number; completed: number; failed: number };
  metadata: Record<string, string> | null;
}

/** Seconds of a completion window's unit. */
const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };
const LONGEST = 14 * UNITS.d!;
const MAX_METADATA = 16;

/** A form; its file is no text. */
export const fileRequest: Schema = {
  type: "object",
  required: ["file", "purpose"],
  properties: {
    file: { ...text, description: "Lines of requests, at most `--max-upload` bytes." },
    purpose: { type: "string", enum: ["batch"] },
    expires_after: refused("Files stay until they are deleted."),
  },
};

export const batchRequest: Schema = {
  type: "object",
  required: ["input_file_id", "endpoint", "completion_window"],
  properties: {
    input_file_id: { ...text, maxLength: 200, description: "A file whose purpose is batch." },
    endpoint: { type: "string", enum: ENDPOINTS, description: "The url of every line." },
    completion_window: {
      ...text,
      maxLength: 20,
      description: "24h, or another number of s, m, h or d, up to 14d; what is not done by then is not begun.",
    },
    metadata: {
      ...orNull({ type: "object", additionalProperties: { ...text, maxLength: 512 } }),
      description: `Kept with the batch: at most ${MAX_METADATA} texts.`,
    },
    output_expires_after: refused("Files stay until they are deleted."),
  },
};

export interface BatchAsk {
  file: string;
  endpoint: Endpoint;
  window: { text: string; seconds: number };
  metadata: Record<string, string> | null;
}

export function readBatch(body: unknown): BatchAsk {
  const fault = check(batchRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as {
    input_file_id: string;
    endpoint: Endpoint;
    completion_window: string;
    metadata?: Record<string, string> | null;
  };
  const [, count, unit] = /^([1-9]\d{0,6})([smhd])$/.exec(fields.completion_window) ?? [];
  const seconds = Number(count) * UNITS[unit ?? "s"]!;
  if (!(seconds <= LONGEST)) {
    const found = show(fields.completion_window);
    throw invalid(
      "completion_window",
      `completion_window must be 24h, or a time like 90m of at most 14d, not ${found}`,
    );
  }
  const metadata = fields.metadata ?? null;
  if (metadata && Object.keys(metadata).length > MAX_METADATA)
    throw invalid("metadata", `metadata must have at most ${MAX_METADATA} keys`);
  return {
    file: fields.input_file_id,
    endpoint: fields.endpoint,
    window: { text: fields.completion_window, seconds },
    metadata,
  };
}

/** Requests of a batch at most, as OpenAI has it: their ids are compared in memory. */
const MAX_REQUESTS = 50_000;
/** Faults that are told of one input. */
const MAX_FAULTS = 100;

/** Reads the input of a batch, line by line: a batch is begun whole, or not at all. */
export class BatchCheck {
  readonly faults: BatchFault[] = [];
  total = 0;
  /** That of the first line. */
  model: string | null = null;
  readonly #endpoint: Endpoint;
  readonly #ids = new Set<string>();

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  /** @returns whether further lines matter */
  add(line: string, fault?: { code: string; message: string }): boolean {
    this.total++;
    if (this.total > MAX_REQUESTS) {
      const message = `a batch may have ${MAX_REQUESTS} requests`;
      this.faults.push({ code: "too_many_requests", message, param: null, line: null });
      return false;
    }
    const found = fault ? { ...fault, param: null } : this.#check(line);
    if (found) this.faults.push({ ...found, line: this.total });
    return this.faults.length < MAX_FAULTS;
  }

  /** @param known whether there is a model of a name */
  end(known: (model: string) => boolean): void {
    const { model, faults } = this;
    if (this.total === 0) {
      faults.push({ code: "empty_file", message: "the file has no requests", param: null, line: null });
    }
    if (model !== null && !known(model)) {
      const message = `the model ${show(model)} does not exist`;
      faults.push({ code: "model_not_found", message, param: "body.model", line: null });
    }
  }

  #check(line: string): Fault | null {
    // The server makes the same checks when it answers a line.
    const { request } = readBatchLine(line, this.total - 1);
    if (request instanceof ApiError) {
      return { code: request.code ?? "invalid_line", message: request.message, param: request.param };
    }
    const { custom_id: id, url } = JSON.parse(line) as { custom_id?: string; url?: string };
    const { model } = request.body;
    if (id === undefined) return absent("custom_id");
    if (url === undefined) return absent("url");
    if (typeof model !== "string") return absent("body.model");
    if (this.#ids.has(id)) {
      const message = `an earlier line has the custom_id ${show(id)}`;
      return { code: "duplicate_custom_id", message, param: "custom_id" };
    }
    this.#ids.add(id);
    if (url !== this.#endpoint) {
      return { code: "invalid_url", message: `url must be the batch's endpoint, ${this.#endpoint}`, param: "url" };
    }
    this.model ??= model;
    if (model === this.model) return null;
    const message = `the model must be that of the first line, ${show(this.model)}, not ${show(model)}`;
    return { code: "mismatched_model", message, param: "body.model" };
  }
}

type Fault = Omit<BatchFault, "line">;

const absent = (param: string): Fault => ({
  code: "missing_required_parameter",
  message: `${param} is missing`,
  param,
});

export interface Page<T> {
  object: "list";
  data: T[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

interface PageQuery {
  limit?: string | undefined;
  after?: string | undefined;
  order?: string | undefined;
}

/** A page of a list. @param items from the oldest on */
export function pageOf<T extends { id: string }>(
  items: readonly T[],
  { limit, after, order = "desc" }: PageQuery,
  { limit: byDefault, most }: { limit: number; most: number },
): Page<T> {
  const count = limit === undefined ? byDefault : Number(limit);
  if (!Number.isInteger(count) || count < 1 || count > most)
    throw invalid("limit", `limit must be an integer from 1 to ${most}, not ${show(limit)}`);
  if (order !== "asc" && order !== "desc") throw invalid("order", `order must be asc or desc, not ${show(order)}`);
  const all = order === "asc" ? items : items.toReversed();
  const at = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && at === 0) throw invalid("after", "after must be the id of one in the list");
  const data = all.slice(at, at + count);
  const [first_id, last_id] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: "list", data, first_id, last_id, has_more: at + data.length < all.length };
}

/** An answer for what is not there. */
export const missing = (what: "file" | "batch", id: string): ApiError =>
  new ApiError(404, `there is no ${what} ${show(id)}`, {
    type: "invalid_request_error",
    param: "id",
    code: `${what}_not_found`,
  });
