/**
 * What makes a request of a row: a text with `{{column}}` in it, which becomes a prompt, or the JSON of a request, whose texts have them.
 * Values go into the texts of parsed JSON, so that no value can become anything else than text.
 */

import type { Line } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";

const PLACE = /\{\{\s*([^{}]+?)\s*\}\}/g;
/** The column whose values are the ids of lines, unless the template has one. */
const ID = "custom_id";

type Values = Readonly<Record<string, unknown>>;
type Row = Omit<Line, "index">;

export class Template {
  readonly #request: Readonly<Record<string, unknown>>;
  /** Columns that are used. */
  readonly columns: readonly string[];

  constructor(text: string) {
    this.#request = requestOf(text);
    const found = new Set<string>();
    mapTexts(this.#request, (one) => {
      for (const [, name] of one.matchAll(PLACE)) found.add(name!);
      return one;
    });
    this.columns = [...found];
    if (found.size > 0) return;
    const [option, expected] = ["--template", "a text with {{column}} in it"];
    throw new EngineError("InvalidArgument", `${option} must be ${expected}: it names no column`, { option, expected });
  }

  /** Refuses a template that uses what no row has. */
  check(names: readonly string[], file: string): void {
    const missing = this.columns.find((column) => !names.includes(column));
    if (missing === undefined) return;
    const message = `--template uses the column ${missing}; ${file} has ${names.join(", ").slice(0, 500)}`;
    throw new EngineError("InvalidArgument", message, { option: "--template", file, found: missing });
  }

  fill(values: Values): Row {
    const missing = this.columns.find((column) => values[column] === undefined);
    if (missing !== undefined)
      return { text: "", fault: { code: "missing_column", message: `the row has no ${missing}` } };
    const request = mapTexts(this.#request, (one) => one.replace(PLACE, (_, name: string) => textOf(values[name])));
    const id = values[ID];
    const named = id === undefined || id === "" ? {} : { [ID]: textOf(id) };
    return { text: JSON.stringify({ ...named, ...(request as object) }) };
  }

  /** A row that is a line of JSON. */
  fillJson(text: string): Row {
    try {
      const values: unknown = JSON.parse(text);
      if (typeof values === "object" && values !== null) return this.fill(values as Values);
    } catch {
      // What is wrong with it is told where it is read as a request.
    }
    return { text };
  }
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** A template that begins with one brace is a request. */
function requestOf(text: string): Record<string, unknown> {
  if (!/^\s*\{(?!\{)/.test(text)) return { prompt: text };
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = `--template begins like JSON, but is none: ${(cause as Error).message}`;
    throw new EngineError("InvalidArgument", message, { option: "--template" }, { cause });
  }
}

function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((one) => mapTexts(one, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mapTexts(one, change)]));
}
