/** The option `responseFormat`: checked on the caller's side and sent as text. */

import { EngineError } from "../types/errors.ts";
import type { ResponseFormat } from "../types/index.ts";

/** A format as the library in the worker takes it. */
export interface FormatSpec {
  kind: "json_schema" | "regex" | "grammar" | "both";
  source: string;
  /** The name of the source in the caller's options. */
  option: string;
}

/** Answers what the option should be, or null where its shape is right. */
export function checkResponseFormat(value: unknown): string | null {
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

export function toFormatSpec(format: ResponseFormat): FormatSpec {
  const name = "responseFormat";
  if (format === "json") return { kind: "json_schema", source: '{"type":"object"}', option: name };
  if (format.type === "regex") return { kind: "regex", source: format.pattern, option: `${name}.pattern` };
  if (format.type === "grammar") return { kind: "grammar", source: format.grammar, option: `${name}.grammar` };
  const option = `${name}.schema`;
  try {
    return { kind: "json_schema", source: JSON.stringify(format.schema), option };
  } catch (cause) {
    const reason = (cause as Error).message;
    throw new EngineError("BadConstraint", `${option} is no JSON: ${reason}`, { option, reason }, { cause });
  }
}
