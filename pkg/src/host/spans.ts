/** Ranges of files, and reads of many of them. */

import { mapConcurrent } from "../source/concurrent.ts";
import type { ModelFiles } from "../source/files.ts";
import { named } from "./headers.ts";

export interface Span {
  file: number;
  offset: number;
  length: number;
}

/** Reads scattered ranges in as few requests as possible. */
export async function readAll(spans: Span[], files: ModelFiles, signal: AbortSignal): Promise<Uint8Array[]> {
  const joined = join([...spans].sort((a, b) => a.file - b.file || a.offset - b.offset));
  const read = await mapConcurrent(joined, (span) =>
    files.weights[span.file]!.read(span.offset, span.length, { signal }),
  );
  return spans.map(({ file, offset, length }) => {
    const index = joined.findLastIndex((one) => one.file === file && one.offset <= offset);
    const from = offset - joined[index]!.offset;
    return read[index]!.subarray(from, from + length);
  });
}

/** Joins neighbours into one range, small gaps included. */
export function join(spans: Span[]): Span[] {
  const joined: Span[] = [];
  for (const span of spans) {
    const last = joined.at(-1);
    const gap = last && last.file === span.file ? span.offset - (last.offset + last.length) : Infinity;
    if (last && gap <= 64 << 10 && span.offset >= last.offset)
      last.length = Math.max(last.length, span.offset + span.length - last.offset);
    else joined.push({ ...span });
  }
  return joined;
}

/** What takes the bytes of spans. An error from any of these names the file that the bytes are from. */
export interface SpanReader<One extends Span = Span> {
  begin?(span: One): void;
  /** A piece is valid until the next one. */
  piece(bytes: Uint8Array): void | Promise<void>;
  end?(): void;
}

/** Streams spans one after another, each in the order of its bytes. */
export async function streamAll<One extends Span>(
  spans: readonly One[],
  files: ModelFiles,
  signal: AbortSignal,
  reader: SpanReader<One>,
) {
  for (const span of spans) {
    const source = files.weights[span.file]!;
    reader.begin?.(span);
    await named(source, async () => {
      for await (const bytes of source.stream(span.offset, span.length, { signal })) {
        await reader.piece(bytes);
        signal.throwIfAborted();
      }
      reader.end?.();
    });
  }
}
