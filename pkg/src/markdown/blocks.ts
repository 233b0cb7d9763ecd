/**
 * The blocks of a Markdown text: paragraphs, headings, lists, quotes, code and tables. HTML and link definitions are no part of it: they
 * are text. The time is linear in the length of the text for every input.
 */

export type Align = "left" | "center" | "right" | null;

export type Block = { line: number } & (
  | { kind: "paragraph"; text: string }
  | { kind: "heading"; level: number; text: string }
  | { kind: "code"; language: string; text: string }
  | { kind: "rule" }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; start: number | null; loose: boolean; items: Item[] }
  | { kind: "table"; align: Align[]; head: string[]; rows: string[][] }
);

export interface Item {
  /** Whether a task is done; null where the item is no task. */
  checked: boolean | null;
  blocks: Block[];
}

/** Quotes and lists inside each other: deeper ones are shown as the text that they are. */
const MAX_DEPTH = 8;
/** A row has as many cells as the head, and no head has more than this. */
const MAX_COLUMNS = 64;

const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}(?=\S)|(?= {5})| *$)/;
const TASK = /^\[([ xX])\] +/;
const DELIMITERS = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/;

const isBlank = (line: string) => line.trim() === "";
const indentOf = (line: string) => line.length - line.trimStart().length;

export const linesOf = (text: string): string[] =>
  text.split(/\r\n?|\n/).map((line) => line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    ")));

/** The blocks of lines, each with the line that it begins at. */
export function parseBlocks(lines: string[], depth = 0): Block[] {
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at]!)) {
      at++;
      continue;
    }
    const [block, end] = blockAt(lines, at, depth);
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** The block that begins at a line, and the line after it. */
function blockAt(lines: string[], at: number, depth: number): [Block, number] {
  const line = lines[at]!;
  const heading = HEADING.exec(line);
  if (heading) {
    const text = (heading[2] ?? "").trim().replace(/(?:^|[ \t])#+$/, "");
    return [{ line: at, kind: "heading", level: heading[1]!.length, text: text.trim() }, at + 1];
  }
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  if (RULE.test(line)) return [{ line: at, kind: "rule" }, at + 1];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && MARKER.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines: string[], at: number, [, indent, fence, info]: RegExpExecArray): [Block, number] {
  const language = info!.trim().split(/\s/, 1)[0]!;
  const inside: string[] = [];
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end]!;
    const mark = line.trim();
    if (mark.length >= fence!.length && mark === fence![0]!.repeat(mark.length) && indentOf(line) < 4) break;
    inside.push(line.slice(Math.min(indentOf(line), indent!.length)));
  }
  return [{ line: at, kind: "code", language, text: inside.join("\n") }, Math.min(end + 1, lines.length)];
}

function quote(lines: string[], at: number, depth: number): [Block, number] {
  const inside: string[] = [];
  let end = at;
  for (; end < lines.length; end++) {
    const line = lines[end]!;
    // A paragraph goes on in a line that has lost its mark.
    if (!QUOTE.test(line) && (isBlank(line) || interrupts(lines, end, depth))) break;
    inside.push(line.replace(QUOTE, ""));
  }
  return [{ line: at, kind: "quote", blocks: parseBlocks(inside, depth + 1) }, end];
}

/** What a paragraph ends at, without a blank line between. */
function interrupts(lines: string[], at: number, depth: number): boolean {
  const line = lines[at]!;
  if (HEADING.test(line) || FENCE.test(line) || RULE.test(line)) return true;
  if (depth < MAX_DEPTH) {
    if (QUOTE.test(line)) return true;
    // A number at the beginning of a line is rarely a list, except 1.
    const marker = MARKER.exec(line);
    if (marker && marker[0].length < line.length && /^(?:[-*+]|1[.)])$/.test(marker[2]!)) return true;
  }
  return isTable(lines, at);
}

function paragraph(lines: string[], at: number, depth: number): [Block, number] {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]!) && !interrupts(lines, end, depth)) end++;
  const text = lines
    .slice(at, end)
    .map((line) => line.trimStart())
    .join("\n");
  return [{ line: at, kind: "paragraph", text: text.trimEnd() }, end];
}

function list(lines: string[], at: number, depth: number): [Block, number] {
  const first = MARKER.exec(lines[at]!)![2]!;
  const ordered = first.length > 1;
  const items: Item[] = [];
  let loose = false;
  let end = at;
  while (end < lines.length) {
    const marker = MARKER.exec(lines[end]!);
    if (!marker || marker[2]!.length > 1 !== ordered || RULE.test(lines[end]!)) break;
    const [inside, next, blank] = itemLines(lines, end, marker, depth);
    const task = TASK.exec(inside[0]!);
    if (task) inside[0] = inside[0]!.slice(task[0].length);
    const blocks = parseBlocks(inside, depth + 1);
    items.push({ checked: task ? task[1] !== " " : null, blocks });
    const more = next < lines.length && MARKER.test(lines[next]!);
    loose ||= (blank && more) || apart(blocks, inside);
    end = next;
  }
  return [{ line: at, kind: "list", start: ordered ? Number.parseInt(first, 10) : null, loose, items }, end];
}

/** Whether a blank line stands between two blocks of an item. */
const apart = (blocks: Block[], inside: string[]) => blocks.slice(1).some(({ line }) => isBlank(inside[line - 1]!));

/** The lines of an item without its indent, the line after it, and whether a blank line ended it. */
function itemLines(lines: string[], at: number, marker: RegExpExecArray, depth: number): [string[], number, boolean] {
  const base = marker[1]!.length;
  const width = Math.max(marker[0].length, base + marker[2]!.length + 1);
  const inside = [lines[at]!.slice(marker[0].length)];
  let end = at + 1;
  let blank = false;
  for (; end < lines.length; end++) {
    const line = lines[end]!;
    if (isBlank(line)) {
      blank = true;
      inside.push("");
      continue;
    }
    // Two spaces are taken as an indent: models write them below numbers too.
    const indent = indentOf(line);
    const belongs = indent >= base + 2;
    if (!belongs && (blank || MARKER.test(line) || interrupts(lines, end, depth))) break;
    inside.push(line.slice(Math.min(indent, width)));
    blank = false;
  }
  while (inside.length > 1 && inside.at(-1) === "") inside.pop();
  return [inside, end, blank];
}

const isTable = (lines: string[], at: number) =>
  lines[at]!.includes("|") &&
  (lines[at + 1]?.includes("-") ?? false) &&
  DELIMITERS.test(lines[at + 1]!.trim()) &&
  cells(lines[at]!).length === cells(lines[at + 1]!).length;

function table(lines: string[], at: number): [Block, number] {
  const head = cells(lines[at]!);
  const align = cells(lines[at + 1]!).map((cell): Align => {
    if (!cell.endsWith(":")) return cell.startsWith(":") ? "left" : null;
    return cell.startsWith(":") ? "center" : "right";
  });
  const rows: string[][] = [];
  let end = at + 2;
  for (; end < lines.length && lines[end]!.includes("|"); end++) {
    const row = cells(lines[end]!);
    rows.push(head.map((_, column) => row[column] ?? ""));
  }
  return [{ line: at, kind: "table", align, head, rows }, end];
}

/** The cells of a row. A bar after a backslash is part of its cell. */
function cells(line: string): string[] {
  const row = line.trim().replace(/^\|/, "");
  const found = row.split(/(?<!\\)\|/);
  if (found.length > 1 && found.at(-1) === "") found.pop();
  return found.slice(0, MAX_COLUMNS).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
