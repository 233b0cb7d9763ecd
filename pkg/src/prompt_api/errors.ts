/** Errors as the Prompt API has them. */

import { EngineError } from "../types/errors.ts";

export const failure = (name: string, message: string, cause?: unknown): DOMException =>
  Object.assign(new DOMException(message, name), cause === undefined ? {} : { cause });

type QuotaError = new (message: string, options: { requested: number; quota: number }) => DOMException;

/** Browsers have a class of its own for it; elsewhere it is an exception of that name with the same fields. */
export function quotaExceeded(requested: number, quota: number): DOMException {
  const message = `the prompt needs ${requested} tokens of context, and there are ${quota}`;
  const { QuotaExceededError: Own } = globalThis as { QuotaExceededError?: QuotaError };
  if (typeof Own === "function") return new Own(message, { requested, quota });
  const error = failure("QuotaExceededError", message);
  for (const [name, value] of Object.entries({ requested, quota })) Object.defineProperty(error, name, { value });
  return error;
}

/** What a page is told of the engine's errors; the reason of an abort stays what it is. */
export function toException(error: unknown): unknown {
  if (!(error instanceof EngineError)) return error;
  const { code } = error;
  const message = error.message.replace(/^responseFormat\.\w+/, "responseConstraint");
  if (/^(MissingTemplate|BadConstraint|Unsupported)/.test(code)) return failure("NotSupportedError", message, error);
  return failure("UnknownError", message, error);
}
