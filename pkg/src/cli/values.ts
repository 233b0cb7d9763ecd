/** How the text of a flag becomes the value of an option. */

import { readFileSync } from "node:fs";
import type { FlagRow } from "../options/commands.ts";
import { EngineError } from "../types/errors.ts";
import type { ActivationMap } from "../types/index.ts";

/** What is no number stays text, which the option's check refuses, naming the range. */
const number = (text: string): number | string => (text.trim() === "" || Number.isNaN(+text) ? text : +text);

/** `12=-inf,40=2.5` */
const biases = (text: string) =>
  Object.fromEntries(
    text.split(",").map((pair) => {
      const [id = "", bias = ""] = pair.split("=");
      return [id.trim(), bias.trim() === "-inf" ? -Infinity : number(bias)];
    }),
  );

/** `4MB`, `512 KiB`: bytes, or a text that is none. */
function bytes(text: string): number | string {
  const [, digits, unit = ""] = /^\s*(\d+(?:\.\d+)?)\s*([kmg]i?b?|b)?\s*$/i.exec(text) ?? [];
  if (digits === undefined) return text;
  const power = " kmg".indexOf(unit[0]?.toLowerCase() ?? " ");
  return Math.round(Number(digits) * (unit[1] === "i" ? 1024 : 1000) ** Math.max(0, power));
}

export const readSweep = (text: string): (number | string)[] => text.split(",").map(number);

/** A map of activations: JSON, or a file of it. Any other text is a name. */
export function readMap(text: string, option: string): ActivationMap | string {
  const file = text.trimStart().startsWith("{") ? undefined : text;
  if (file !== undefined && !file.endsWith(".json")) return file;
  try {
    return JSON.parse(file === undefined ? text : readFileSync(file, "utf8"));
  } catch (cause) {
    const where = file === undefined ? {} : { file };
    const code = cause instanceof SyntaxError ? "BadValue" : "NotFound";
    throw new EngineError(code, `${option}: ${(cause as Error).message}`, { option, ...where }, { cause });
  }
}

export function readText({ name, option: { kind, flag } }: FlagRow, texts: readonly string[]): unknown {
  const { value, sets = true, many, read } = flag!;
  if (value === undefined) return sets;
  if (many) return [...texts];
  const text = texts.at(-1)!;
  if (read === "biases") return biases(text);
  if (read === "bytes") return bytes(text);
  if (read === "percent") return number(text.replace(/\s*%\s*$/, ""));
  if (read === "map") return readMap(text, `--${name}`);
  if (read === "list") return text.split(",");
  // What takes one value gets the first one.
  if (read === "sweep") return readSweep(text)[0];
  return typeof kind === "object" && !("values" in kind) ? number(text) : text;
}
