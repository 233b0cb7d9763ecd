/** What the architecture test finds in source files. Pure functions, so that the test can try them on made-up files. */

import path from "node:path";

/** Files by their paths from `pkg/src`, with their texts. */
export type Files = ReadonlyMap<string, string>;

/** The modules from the ground up, each with the modules that it may import. */
export type Rooms = Readonly<Record<string, readonly string[]>>;

/** Entry files lie in `pkg/src` itself. */
export const ENTRIES = "entries";

export const MAX_LINES = 450;
export const MAX_FUNCTION_LINES = 60;

/** A file or a function may be longer where its comment has a sentence that begins so. */
const REASON = "Long because ";

/** The module that a file belongs to: its folder. */
export const roomOf = (file: string): string => (file.includes("/") ? file.split("/")[0]! : ENTRIES);

/**
 * The files within `pkg/src` that a file imports: by `import`, type imports included, by `export … from` and by `import()`, in types
 * too.
 */
export function importsOf(file: string, text: string): string[] {
  const pattern = /\bfrom\s*["']([^"']+)["']|\bimport\s*\(\s*["']([^"']+)["']|\bimport\s*["']([^"']+)["']/g;
  const names = [...withoutComments(text).matchAll(pattern)].map((found) => (found[1] ?? found[2] ?? found[3])!);
  const paths = names
    .filter((name) => name.startsWith("."))
    .map((name) => path.posix.join(path.posix.dirname(file), name));
  return [...new Set(paths)].filter((target) => !target.startsWith("..") && target.endsWith(".ts"));
}

/** Arrows between modules that the list does not have, modules that it does not have, and arrows up in the list itself. */
export function wrongArrows(files: Files, rooms: Rooms): string[] {
  const order = Object.keys(rooms);
  const upwards = order.flatMap((room, at) =>
    rooms[room]!.filter((other) => !order.slice(0, at).includes(other)).map(
      (other) => `the list lets ${room} import ${other}, which does not lie below it`,
    ),
  );
  const arrows = [...files].flatMap(([file, text]) => {
    const room = roomOf(file);
    if (!(room in rooms)) return [`${file}: ${room} is not in the list of modules`];
    return importsOf(file, text)
      .filter((target) => roomOf(target) !== room && !rooms[room]!.includes(roomOf(target)))
      .map((target) => `${file} imports ${target}: ${room} may not import ${roomOf(target)}`);
  });
  return [...upwards, ...arrows];
}

/** Arrows in the list that no file needs. */
export function unusedArrows(files: Files, rooms: Rooms): string[] {
  const used = new Set(
    [...files].flatMap(([file, text]) => importsOf(file, text).map((target) => `${roomOf(file)} ${roomOf(target)}`)),
  );
  return Object.entries(rooms).flatMap(([room, others]) =>
    others.filter((other) => !used.has(`${room} ${other}`)).map((other) => `${room} does not import ${other}`),
  );
}

/** Files that import each other, directly or through others. Each circle is shown once. */
export function circles(files: Files): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, trail: string[]) => {
    const at = trail.indexOf(file);
    if (at >= 0) found.push([...trail.slice(at), file].join(" → "));
    if (at >= 0 || done.has(file)) return;
    for (const target of importsOf(file, files.get(file) ?? "")) visit(target, [...trail, file]);
    done.add(file);
  };
  for (const file of files.keys()) visit(file, []);
  return found;
}

/** Imports of files that only one module, besides their own, may import. */
export function wrongImporters(files: Files, owned: RegExp, owner: string): string[] {
  return [...files].flatMap(([file, text]) =>
    importsOf(file, text)
      .filter((target) => owned.test(target) && ![owner, roomOf(target)].includes(roomOf(file)))
      .map((target) => `${file} imports ${target}, which is for ${owner} alone`),
  );
}

/** Files and functions that are too long and whose comment does not say why. */
export function tooLong(files: Files): string[] {
  return [...files].flatMap(([file, text]) => {
    const lines = text.trimEnd().split("\n");
    const [first = ""] = /^\s*\/\*[\s\S]*?\*\/|^(\s*\/\/.*\n)+/.exec(text) ?? [];
    const long = functionsOf(text)
      .filter((one) => one.lines > MAX_FUNCTION_LINES && !one.comment.includes(REASON))
      .map((one) => `${file}:${one.line}: a function of ${one.lines} lines`);
    if (lines.length > MAX_LINES && !first.includes(REASON)) long.push(`${file}: ${lines.length} lines`);
    return long;
  });
}

export interface Found {
  /** The first line of its head, counted from 1. */
  line: number;
  lines: number;
  /** The comment directly above it. */
  comment: string;
}

/**
 * The functions of a file that is formatted as this package is: the line that begins a body ends in `{`, and the line that ends it
 * begins with `}` at the same indentation. Whether a body is a function's shows in its head.
 */
export function functionsOf(text: string): Found[] {
  const lines = text.split("\n");
  const code = withoutComments(text).split("\n");
  const indent = (line: string) => line.length - line.trimStart().length;
  return code.flatMap((line, at) => {
    if (!line.trimEnd().endsWith("{")) return [];
    let from = at;
    // Parameters on lines of their own: the head begins where this indentation was last.
    if (/^[)>\]}]/.test(line.trim())) {
      do from--;
      while (from > 0 && (code[from]!.trim() === "" || indent(code[from]!) > indent(line)));
    }
    if (
      !isFunction(
        code
          .slice(from, at + 1)
          .join(" ")
          .trim(),
      )
    )
      return [];
    const end = code.findIndex((other, i) => i > at && indent(other) === indent(line) && other.trim().startsWith("}"));
    return end < 0 ? [] : [{ line: from + 1, lines: end - from + 1, comment: commentAbove(lines, from) }];
  });
}

const STATEMENT = /^(\}\s*)?(else|if|for|while|switch|catch|do|try|finally|return|throw|new|await|with)\b/;

function isFunction(head: string): boolean {
  if (/=>\s*\{$/.test(head) || /\bfunction\b/.test(head)) return true;
  if (STATEMENT.test(head)) return false;
  // A method: its name, its parameters and perhaps the type that it returns.
  return /^((static|async|get|set|override|public|private|protected)\s+)*\*?\s*(#?[\w$]+|\[[^\]]+\])\s*(<.*>)?\(.*\)(\s*:.*)?\s*\{$/.test(
    head,
  );
}

function commentAbove(lines: readonly string[], from: number): string {
  let first = from;
  while (first > 0 && /^\s*(\/\/|\/?\*)/.test(lines[first - 1]!)) first--;
  return lines.slice(first, from).join("\n");
}

/** The text with its comments blanked, lines kept. Strings stay, so that `//` in an address is not taken for a comment. */
export function withoutComments(text: string): string {
  const pattern = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|\/\/.*|\/\*[\s\S]*?\*\//g;
  return text.replace(pattern, (part) => (/^\/[/*]/.test(part) ? part.replace(/[^\n]/g, " ") : part));
}
