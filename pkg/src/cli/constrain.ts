/** The response format that flags ask for. */

import { flagsOf } from "../options/commands.ts";
import type { ResponseFormat } from "../types/index.ts";
import type { Args } from "./args.ts";
import { readText } from "./file.ts";
import { UsageError } from "./syntax.ts";

const FLAGS = flagsOf(["formatFlags"]);

export async function formatOf(args: Args): Promise<ResponseFormat | null> {
  const [one, other] = FLAGS.filter(({ key }) => args.has(key));
  if (other) throw new UsageError(`give either --${one!.name} or --${other.name}`);
  const [schema, pattern, grammar] = [args.text("jsonSchema"), args.text("regex"), args.text("grammar")];
  if (schema !== undefined) return { type: "json_schema", schema: parse(await textOf(schema)) };
  if (pattern !== undefined) return { type: "regex", pattern };
  return grammar === undefined ? null : { type: "grammar", grammar: await readText(grammar) };
}

/** The text of a schema: one begins with a brace or is `true`, anything else names a file. */
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
