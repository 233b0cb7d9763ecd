/** Interfaces and type aliases of our sources, as far as a comparison of names, types and defaults needs them. */

import { readFileSync } from "node:fs";

export interface Member {
  name: string;
  optional: boolean;
  /** Without `undefined`. */
  type: string;
  /** What the doc comment says behind `@default`; null where it says nothing. */
  byDefault: string | null;
}

export interface Types {
  /** Members by interface, those of its bases among them. */
  members(name: string): Member[];
  /** The texts that a type allows; null where it is more than texts. */
  literals(type: string): string[] | null;
}

const DECLARED = /^export interface (\w+)(?: extends ([\w, ]+))? \{\n(.*?)^\}/gms;
const MEMBER = /(?:^ {2}\/\*\*(.*?)\*\/\n)?^ {2}(?:readonly )?(\w+)(\??): (.*?);\n/gms;
const ALIAS = /^export type (\w+) =(.*?);\n/gms;

export function readTypes(files: readonly URL[]): Types {
  const text = files.map((file) => readFileSync(file, "utf8")).join("\n");
  const interfaces = new Map(
    [...text.matchAll(DECLARED)].map(([, name, bases, body]) => [name!, { bases, body: body! }]),
  );
  const aliases = new Map([...text.matchAll(ALIAS)].map(([, name, type]) => [name!, type!]));
  const members = (name: string): Member[] => {
    const { bases, body } = interfaces.get(name) ?? {};
    if (body === undefined) throw new Error(`there is no interface ${name}`);
    const own = [...body.matchAll(MEMBER)].map(([, doc = "", name, optional, type]) => ({
      name: name!,
      optional: optional === "?",
      type: type!.replace(/\s+/g, " ").replace(/ \| undefined$/, ""),
      byDefault: /@default ([^\n]*?)\s*$/s.exec(doc.replace(/\n\s*\* ?/g, "\n"))?.[1] ?? null,
    }));
    return [...(bases?.split(", ").flatMap(members) ?? []), ...own];
  };
  const literals = (type: string): string[] | null => {
    const parts = (aliases.get(type) ?? type).replace(/\/\*.*?\*\//gs, "").split("|");
    const found = parts.map((part) => /^"(.*)"$/.exec(part.trim())?.[1]);
    return found.every((one) => one !== undefined) ? (found as string[]) : null;
  };
  return { members, literals };
}
