/** `responseConstraint` as a format of the engine. */

import type { ResponseFormat } from "../types/index.ts";
import type { LanguageModelPromptOptions } from "./idl.ts";

export function formatOf({
  responseConstraint,
  omitResponseConstraintInput,
}: LanguageModelPromptOptions): ResponseFormat | null {
  if (responseConstraint === undefined || responseConstraint === null) {
    if (omitResponseConstraintInput) throw new TypeError("omitResponseConstraintInput needs a responseConstraint");
    return null;
  }
  if (responseConstraint instanceof RegExp) return { type: "regex", pattern: responseConstraint };
  if (typeof responseConstraint !== "object" || Array.isArray(responseConstraint))
    throw new TypeError("responseConstraint must be a JSON schema or a RegExp");
  return { type: "json_schema", schema: responseConstraint };
}
