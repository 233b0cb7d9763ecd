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
  if (responseConstraint instanceof RegExp) return { type: "regex", pattern: patternOf(responseConstraint) };
  if (typeof responseConstraint !== "object" || Array.isArray(responseConstraint))
    throw new TypeError("responseConstraint must be a JSON schema or a RegExp");
  return { type: "json_schema", schema: responseConstraint };
}

/** The whole answer matches: anchors at its ends say nothing more. Flags stand within the pattern. */
function patternOf({ source, flags }: RegExp): string {
  const inner = source.replace(/^\^/, "").replace(/(?<!\\)((?:\\\\)*)\$$/, "$1");
  const own = [...flags].filter((flag) => "ims".includes(flag)).join("");
  return own ? `(?${own}:${inner})` : inner;
}
