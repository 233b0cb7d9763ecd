/** What Python's strings, `repr` and `strftime` do where JavaScript's differ: chat templates are written for them. */

import { MAX_LIST } from "./limits.ts";

/** What `str.isspace` holds for: unlike JavaScript's \s with U+001C to U+001F and U+0085, without U+FEFF. */
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES = new RegExp(`[${SPACE}]+`, "u");
const LINE_ENDS = "\\n-\\r\\x1c-\\x1e\\x85\\u2028\\u2029";
const LINE_END = new RegExp(`\\r\\n|[${LINE_ENDS}]`, "u");
const SPACES_AT_START = new RegExp(`^[${SPACE}]+`, "u");

/** `str.strip`, `lstrip`, `rstrip`; `chars` is a set of characters, null means white space. */
export function strip(text: string, chars: string | null, left = true, right = true): string {
  const set = chars === null ? null : new Set(chars);
  const drop = (char: string) => (set ? set.has(char) : SPACES.test(char));
  let start = 0;
  let end = text.length;
  while (left && start < end) {
    const char = String.fromCodePoint(text.codePointAt(start) as number);
    if (!drop(char)) break;
    start += char.length;
  }
  while (right && end > start) {
    const pair = end - start > 1 && (text.codePointAt(end - 2) as number) > 0xffff;
    const char = text.slice(pair ? end - 2 : end - 1, end);
    if (!drop(char)) break;
    end -= char.length;
  }
  return text.slice(start, end);
}

/** `str.split`: at most `max` cuts from the left, all where it is negative. It ends where a list would be too long. */
export function split(text: string, separator: string | null, max = -1): string[] {
  const parts: string[] = [];
  let rest = separator === null ? text.replace(SPACES_AT_START, "") : text;
  while (max < 0 || parts.length < max) {
    const found = separator === null ? SPACES.exec(rest) : null;
    const at = separator === null ? (found?.index ?? -1) : rest.indexOf(separator);
    if (at < 0 || parts.length > MAX_LIST) break;
    parts.push(rest.slice(0, at));
    rest = rest.slice(at + (separator ?? (found as RegExpExecArray)[0]).length);
  }
  if (separator !== null || rest !== "") parts.push(rest);
  return parts;
}

/** `str.rsplit`: at most `max` cuts from the right. */
export function rsplit(text: string, separator: string | null, max = -1): string[] {
  const parts: string[] = [];
  let end = text.length;
  const isSpace = (at: number) => SPACES.test(text[at] as string);
  if (separator === null) while (end > 0 && isSpace(end - 1)) end--;
  while ((max < 0 || parts.length < max) && parts.length <= MAX_LIST) {
    let at =
      separator === null ? end - 1 : end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
    if (separator === null) while (at >= 0 && !isSpace(at)) at--;
    if (at < 0) break;
    parts.push(text.slice(at + (separator?.length ?? 1), end));
    end = at;
    if (separator === null) while (end > 0 && isSpace(end - 1)) end--;
  }
  if (separator !== null || end > 0) parts.push(text.slice(0, end));
  return parts.reverse();
}

export function splitLines(text: string): string[] {
  const lines = text.split(LINE_END);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** `str.capitalize`: the rest of the text becomes lower case. */
export function capitalize(text: string): string {
  if (text === "") return "";
  const first = String.fromCodePoint(text.codePointAt(0) as number);
  const upper = first.toUpperCase();
  const head = String.fromCodePoint(upper.codePointAt(0) as number);
  return head + (upper.slice(head.length) + text.slice(first.length)).toLowerCase();
}

/** `str.title`: a letter is upper case after anything that is none. */
export function title(text: string): string {
  return text.replace(/\p{L}+/gu, capitalize);
}

/** Jinja2's `title` filter: words end at spaces, dashes and opening brackets only. */
export function titleWords(text: string): string {
  return text.replace(new RegExp(`[^-${SPACE}({[<]+`, "gu"), capitalize);
}

/** `len`: code points, not UTF-16 units. */
export function length(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** `text[index]` by code points; undefined outside of it. */
export function charAt(text: string, index: number): string | undefined {
  return [...text].at(index);
}

/** `str.find` by code points. */
export function find(text: string, part: string): number {
  const at = text.indexOf(part);
  return at < 0 ? -1 : length(text.slice(0, at));
}

/** `repr` of a string: how it shows inside a printed list or dict. */
export function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const hex = (char: string) => {
    const code = char.codePointAt(0) as number;
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${code.toString(16).padStart(digits as number, "0")}`;
  };
  const named: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [mark]: `\\${mark}` };
  const escaped = text.replace(/[\\'"]|[\p{C}\p{Z}]/gu, (char) =>
    char === " " ? char : (named[char] ?? (char === "'" || char === '"' ? char : hex(char))),
  );
  return mark + escaped + mark;
}

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  ...["January", "February", "March", "April", "May", "June"],
  ...["July", "August", "September", "October", "November", "December"],
];

/** Of a format of a date, each letter of which becomes some twenty characters. */
const MAX_FORMAT = 1024;

/** `datetime.strftime` in the C locale; `%-d` and its like drop the padding. */
export function strftime(date: Date, format: string): string {
  if (typeof format !== "string" || format.length > MAX_FORMAT)
    throw new Error(`strftime takes a text of at most ${MAX_FORMAT} characters`);
  const day = DAYS[date.getDay()] as string;
  const month = MONTHS[date.getMonth()] as string;
  const hour12 = date.getHours() % 12 || 12;
  const newYear = Date.UTC(date.getFullYear(), 0, 1);
  const dayOfYear = (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - newYear) / 86_400_000 + 1;
  const padded = (value: number, width = 2) => String(value).padStart(width, "0");
  const fields: Record<string, () => string> = {
    a: () => day.slice(0, 3),
    A: () => day,
    b: () => month.slice(0, 3),
    B: () => month,
    c: () => strftime(date, "%a %b %e %H:%M:%S %Y"),
    d: () => padded(date.getDate()),
    D: () => strftime(date, "%m/%d/%y"),
    e: () => String(date.getDate()).padStart(2, " "),
    F: () => strftime(date, "%Y-%m-%d"),
    H: () => padded(date.getHours()),
    I: () => padded(hour12),
    j: () => padded(dayOfYear, 3),
    m: () => padded(date.getMonth() + 1),
    M: () => padded(date.getMinutes()),
    p: () => (date.getHours() < 12 ? "AM" : "PM"),
    S: () => padded(date.getSeconds()),
    T: () => strftime(date, "%H:%M:%S"),
    w: () => String(date.getDay()),
    x: () => strftime(date, "%m/%d/%y"),
    X: () => strftime(date, "%H:%M:%S"),
    y: () => padded(date.getFullYear() % 100),
    Y: () => String(date.getFullYear()),
    "%": () => "%",
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (all, minus: string, letter: string) => {
    const text = fields[letter]?.();
    if (text === undefined) return all;
    return minus ? text.replace(/^[0 ]+(?=.)/, "") : text;
  });
}
