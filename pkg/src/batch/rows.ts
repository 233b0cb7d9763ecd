/** Rows of a batch's input as lines of JSON: lines as they are, CSV and lines of any fields by a template. */

import { parse } from "csv-parse";
import type { Line } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";
import type { Input } from "./input.ts";
import { linesOf } from "./lines.ts";
import type { Template } from "./template.ts";

/** Bytes of a line at most: longer ones are errors, and are not kept. */
export const MAX_LINE = 16 * 2 ** 20;
const [LF, CR] = [0x0a, 0x0d];
/** A byte order mark is no part of the first line. */
const MARK = [0xef, 0xbb, 0xbf];
/** Rows of CSV that go on together. */
const BLOCK = 256;

export type RowFormat = "jsonl" | "csv";

/** By the name of the file; where that says nothing, a template means CSV unless the input begins like JSON. */
export function formatOf(name: string): RowFormat | null {
  const plain = name.replace(/\.(gz|zst)$/i, "");
  if (/\.csv$/i.test(plain)) return "csv";
  return /\.(jsonl|ndjson|json)$/i.test(plain) ? "jsonl" : null;
}

/** Blocks of rows, numbered from 0. Blank lines are none. */
export async function* readRows(input: Input, template: Template | null): AsyncGenerator<Line[], undefined> {
  const { format, bytes } = await toldFormat(input, template);
  if (format === "csv" && template === null) {
    const message = `${input.name} is CSV, whose rows become requests by --template`;
    throw new EngineError("InvalidArgument", message, { file: input.name, option: "--template" });
  }
  let index = 0;
  const blocks = format === "csv" ? csvRows(bytes, template!, input.name) : jsonRows(bytes, template);
  for await (const block of blocks) yield block.map((row) => ({ index: index++, ...row }));
}

/** Reads the first block, so that an input that is none is told before anything else is done. @returns all blocks */
export async function begun<T>(rows: AsyncGenerator<T, undefined>): Promise<AsyncIterableIterator<T>> {
  let first: IteratorResult<T> | null = await rows.next();
  const all: AsyncIterableIterator<T> = {
    async next() {
      const found = first ?? (await rows.next());
      first = null;
      return found;
    },
    return: () => rows.return(undefined),
    [Symbol.asyncIterator]: () => all,
  };
  return all;
}

async function toldFormat(input: Input, template: Template | null) {
  const byName = formatOf(input.name);
  if (byName !== null || template === null) return { format: byName ?? "jsonl", bytes: input.bytes };
  const iterator = input.bytes[Symbol.asyncIterator]();
  const first = await iterator.next();
  const head: Uint8Array = first.done ? new Uint8Array() : first.value;
  async function* all(): AsyncGenerator<Uint8Array, undefined> {
    yield head;
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
  }
  const json = /^\uFEFF?\s*\{/.test(new TextDecoder().decode(head.subarray(0, 4096)));
  return { format: json ? ("jsonl" as const) : ("csv" as const), bytes: all() };
}

type Row = Omit<Line, "index">;

async function* jsonRows(
  bytes: AsyncIterable<Uint8Array>,
  template: Template | null,
): AsyncGenerator<Row[], undefined> {
  let first = true;
  for await (const lines of linesOf(bytes, { most: MAX_LINE })) {
    const rows = lines.flatMap((line): Row[] => {
      const row = toRow(line && bare(line, first));
      first = false;
      if (row.fault) return [row];
      if (row.text.trim() === "") return [];
      return [template ? template.fillJson(row.text) : row];
    });
    if (rows.length > 0) yield rows;
  }
}

function bare(line: Uint8Array, first: boolean): Uint8Array {
  const begin = first && MARK.every((byte, i) => line[i] === byte) ? MARK.length : 0;
  return line.subarray(begin, line.at(-1) === CR ? -1 : undefined);
}

const fault = (code: string, message: string): Row => ({ text: "", fault: { code, message } });
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function toRow(line: Uint8Array | null): Row {
  if (line === null) return fault("line_too_large", `the line has more than ${MAX_LINE} bytes`);
  try {
    return { text: decoder.decode(line) };
  } catch {
    return fault("invalid_json_line", "the line is not UTF-8");
  }
}

async function* csvRows(
  bytes: AsyncIterable<Uint8Array>,
  template: Template,
  file: string,
): AsyncGenerator<Row[], undefined> {
  const parser = parse({
    columns: (names: string[]) => {
      template.check(names, file);
      return names;
    },
    bom: true,
    skip_empty_lines: true,
    relax_column_count: true,
    max_record_size: MAX_LINE,
  });
  const feed = async () => {
    for await (const chunk of utf8Of(bytes, file)) {
      if (!parser.write(chunk)) await new Promise((resolve) => parser.once("drain", resolve));
    }
    parser.end();
  };
  feed().catch((error) => parser.destroy(error));
  const block: Row[] = [];
  try {
    for await (const record of parser) {
      block.push(template.fill(record));
      if (block.length >= BLOCK) yield block.splice(0);
    }
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError("BadValue", `${file} is no CSV: ${(cause as Error).message}`, { file }, { cause });
  }
  yield block;
}

/** The same bytes. The parser would make other text of what is not UTF-8. */
async function* utf8Of(bytes: AsyncIterable<Uint8Array>, file: string): AsyncGenerator<Uint8Array, undefined> {
  const strict = new TextDecoder("utf-8", { fatal: true });
  let line = 1;
  const check = (some?: Uint8Array) => {
    try {
      strict.decode(some, { stream: some !== undefined });
    } catch (cause) {
      const detail = { file, expected: "UTF-8" };
      throw new EngineError("BadValue", `line ${line} of ${file} is not UTF-8`, detail, { cause });
    }
  };
  for await (const chunk of bytes) {
    for (let at = 0; at < chunk.length; ) {
      const end = chunk.indexOf(LF, at) + 1 || chunk.length;
      check(chunk.subarray(at, end));
      if (chunk[end - 1] === LF) line++;
      at = end;
    }
    yield chunk;
  }
  check();
}
