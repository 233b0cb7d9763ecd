/** The `format` option: checked on the caller's side, sent as text. */

import { EngineError } from "../types/errors.ts";
import type { Format } from "../types/index.ts";

/** A format as the library in the worker takes it. */
export interface FormatSpec {
  kind: "json_schema" | "regex" | "grammar" | "both";
  source: string;
  /** What the caller calls the source. */
  option: string;
}

/** What it is wrong with, or null: a check of the option's shape alone. */
export function checkFormat(value: unknown): string | null {
  const { type, schema, pattern, grammar } = (value ?? {}) as Record<string, unknown>;
  const fine =
    value === "json" ||
    (type === "json_schema" && (typeof schema === "object" || schema === true)) ||
    (type === "regex" && typeof pattern === "string") ||
    (type === "grammar" && typeof grammar === "string");
  return fine
    ? null
    : '"json", { type: "json_schema", schema }, { type: "regex", pattern } or { type: "grammar", grammar }';
}

export function toFormatSpec(format: Format): FormatSpec {
  if (format === "json") return { kind: "json_schema", source: '{"type":"object"}', option: "format" };
  if (format.type === "regex") return { kind: "regex", source: format.pattern, option: "format.pattern" };
  if (format.type === "grammar") return { kind: "grammar", source: format.grammar, option: "format.grammar" };
  const option = "format.schema";
  try {
    return { kind: "json_schema", source: JSON.stringify(format.schema), option };
  } catch (cause) {
    const reason = (cause as Error).message;
    throw new EngineError("BadConstraint", `${option} is no JSON: ${reason}`, { option, reason }, { cause });
  }
}
