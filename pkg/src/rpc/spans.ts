/** Pieces of files, and reads of many of them. */

import type { ModelFiles } from "../source/files.ts";

export interface Span {
  file: number;
  offset: number;
  length: number;
}

/** Scattered rows, in as few reads as may be and all at once. */
export async function readAll(spans: Span[], files: ModelFiles, signal: AbortSignal): Promise<Uint8Array[]> {
  const reads = join([...spans].sort((a, b) => a.file - b.file || a.offset - b.offset)).map(async (span) => ({
    ...span,
    bytes: await files.weights[span.file]!.read(span.offset, span.length, { signal }),
  }));
  const read = await Promise.all(reads);
  return spans.map(({ file, offset, length }) => {
    const within = read.findLast((one) => one.file === file && one.offset <= offset)!;
    return within.bytes.subarray(offset - within.offset, offset - within.offset + length);
  });
}

/** Neighbours are read at one go, small gaps with them. */
export function join(spans: Span[]): Span[] {
  const joined: Span[] = [];
  for (const span of spans) {
    const last = joined.at(-1);
    const gap = last && last.file === span.file ? span.offset - (last.offset + last.length) : Infinity;
    if (last && gap <= 64 << 10) last.length += gap + span.length;
    else joined.push({ ...span });
  }
  return joined;
}
