/** Pieces of files, and reads of many of them. */

import { mapConcurrent } from "../source/concurrent.ts";
import type { ModelFiles } from "../source/files.ts";

export interface Span {
  file: number;
  offset: number;
  length: number;
}

/** Scattered rows, in as few reads as may be. */
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

/** Neighbours are read at one go, small gaps with them. */
export function join(spans: Span[]): Span[] {
  const joined: Span[] = [];
  for (const span of spans) {
    const last = joined.at(-1);
    const gap = last && last.file === span.file ? span.offset - (last.offset + last.length) : Infinity;
    if (last && gap <= 64 << 10) last.length = Math.max(last.length, span.offset + span.length - last.offset);
    else joined.push({ ...span });
  }
  return joined;
}
