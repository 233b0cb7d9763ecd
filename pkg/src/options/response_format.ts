/** The option `responseFormat`: checked on the caller's side and sent as text. */

import { EngineError } from "../types/errors.ts";
import type { ResponseFormat } from "../types/index.ts";

/** A format as the library in the worker takes it. */
export interface FormatSpec {
  kind: "json_schema" | "regex" | "regexp" | "grammar" | "both";
  source: string;
  /** The name of the source in the caller's options. */
  option: string;
}

interface Parts {
  type?: unknown;
  schema?: unknown;
  /** OpenAI's. */
  json_schema?: { schema?: unknown } | null;
  pattern?: unknown;
  grammar?: unknown;
}

/** The schema of a format, in our shape or in OpenAI's, with its place. */
function schemaOf({ type, schema, json_schema: inner }: Parts): [schema: unknown, place: string] | null {
  if (type === "json_schema" && schema !== undefined) return [schema, "schema"];
  return inner && (type ?? "json_schema") === "json_schema" ? [inner.schema, "json_schema.schema"] : null;
}

/** Answers what the option should be, or null where its shape is right. */
export function checkResponseFormat(value: unknown): string | null {
  const parts = (value ?? {}) as Parts;
  const { type, pattern, grammar } = parts;
  const [schema] = schemaOf(parts) ?? [];
  const fine =
    value === "json" ||
    type === "json_object" ||
    type === "text" ||
    schema === true ||
    (typeof schema === "object" && schema !== null) ||
    (type === "regex" && (typeof pattern === "string" || pattern instanceof RegExp)) ||
    (type === "grammar" && typeof grammar === "string");
  return fine
    ? null
    : '"json", { type: "json_schema", schema }, { type: "regex", pattern } or { type: "grammar", grammar }';
}

/** @returns null where any text is allowed */
export function toFormatSpec(format: ResponseFormat): FormatSpec | null {
  const name = "responseFormat";
  const parts = (format === "json" ? { type: "json_object" } : format) as Parts;
  const { type, pattern, grammar } = parts;
  if (type === "text") return null;
  if (type === "json_object") return { kind: "json_schema", source: '{"type":"object"}', option: name };
  if (type === "regex") {
    const option = `${name}.pattern`;
    // Its flags come with it: `/source/flags`.
    return pattern instanceof RegExp
      ? { kind: "regexp", source: String(pattern), option }
      : { kind: type, source: pattern as string, option };
  }
  if (type === "grammar") return { kind: type, source: grammar as string, option: `${name}.grammar` };
  const [schema, place] = schemaOf(parts)!;
  const option = `${name}.${place}`;
  try {
    return { kind: "json_schema", source: JSON.stringify(schema), option };
  } catch (cause) {
    const reason = (cause as Error).message;
    throw new EngineError("BadConstraint", `${option} is no JSON: ${reason}`, { option, reason }, { cause });
  }
}
