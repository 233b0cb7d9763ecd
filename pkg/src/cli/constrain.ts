/** What an answer keeps to, as flags say it. */

import type { Format } from "../types/index.ts";
import type { Args } from "./args.ts";
import { readText } from "./file.ts";
import type { FlagName } from "./flags.ts";
import { UsageError } from "./usage.ts";

export const formatFlags: readonly FlagName[] = ["json-schema", "regex", "grammar"];

export async function formatOf(args: Args): Promise<Format | null> {
  const given = formatFlags.filter((name) => args.has(name));
  if (given.length > 1) throw new UsageError(`give either --${given[0]} or --${given[1]}`);
  const [schema, pattern, grammar] = formatFlags.map((name) => args.text(name));
  if (schema !== undefined) return { type: "json_schema", schema: parse(await textOf(schema)) };
  if (pattern !== undefined) return { type: "regex", pattern };
  return grammar === undefined ? null : { type: "grammar", grammar: await readText(grammar) };
}

/** A schema begins with a brace, or is `true`; anything else is the name of a file. */
const textOf = async (given: string) => (/^\s*(\{|true\s*$)/.test(given) ? given : await readText(given));

function parse(text: string): object | true {
  const wrong = (reason: string) => new UsageError(`--json-schema: ${reason}`, { option: "--json-schema" });
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (cause) {
    throw wrong((cause as Error).message);
  }
  if (schema !== true && (typeof schema !== "object" || schema === null)) throw wrong("a schema is an object, or true");
  return schema;
}
