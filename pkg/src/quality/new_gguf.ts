/** New GGUF files, made of ranges of an old one: nothing is held but what changes. */

import { layOut, type RawPair, rawPair } from "../convert/header.ts";
import { type ModelFiles, openFiles } from "../source/files.ts";
import type { OpenContext } from "../source/open.ts";
import type { Source } from "../source/source.ts";
import type { SourceSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { Gguf, GgufTensor } from "./gguf.ts";

/** Bytes to write in place of others, which begin at an offset in the same file. */
export interface Patch {
  offset: number;
  bytes: Uint8Array;
}

/** A range of one of the model's files. With `change`, its bytes go through that, in pieces of whole units. */
export interface Range {
  file: number;
  offset: number;
  length: number;
  /** What is wrong in the file, put right before anything else; in order. */
  patches?: readonly Patch[];
  unit?: number;
  change?(bytes: Uint8Array): Uint8Array;
  /** The bytes that come out, where they are not as many as go in. */
  made?: number;
}

export type Part = Uint8Array | Range;

export interface NewTensor {
  name: string;
  dims: number[];
  type: number;
  parts: readonly Part[];
}

/** A file that is not written yet. */
export interface NewFile {
  readonly size: number;
  /** Its bytes, in order; each call reads the model anew. */
  stream(options?: { signal?: AbortSignal | undefined }): AsyncIterable<Uint8Array>;
}

/** How a model is opened, again each time. */
export interface Opening extends Pick<OpenContext, "paths" | "url"> {
  spec: SourceSpec;
}

export const opened = ({ spec, paths, url }: Opening, signal?: AbortSignal): Promise<ModelFiles> =>
  openFiles(spec, { paths, ...(url ? { url } : {}), signal });

/** Opens a model's files for `work`, and closes them after it. */
export async function withFiles<T>(
  opening: Opening,
  signal: AbortSignal | undefined,
  work: (files: ModelFiles) => Promise<T>,
): Promise<T> {
  const files = await opened(opening, signal);
  try {
    return await work(files);
  } finally {
    await Promise.all(files.weights.map((source) => source.close()));
  }
}

/** Bytes of the files with a model's weights. */
export const sizeOf = (weights: readonly Pick<Source, "size">[]): number =>
  weights.reduce((sum, { size }) => sum + size, 0);

export const whole = ({ file, offset, bytes }: GgufTensor): Range => ({ file, offset, length: bytes });

/** A tensor as it is. */
export const kept = ({ name, dims, type }: GgufTensor, parts?: readonly Part[]): NewTensor => ({
  name,
  dims,
  type,
  parts: parts ?? [],
});

const length = (part: Part) => (part instanceof Uint8Array ? part.length : (part.made ?? part.length));

/** Metadata of the file that it was split into, which a file in one piece does not have. */
const OF_PARTS = /^split\./;

/** Replaces and adds pairs; those whose value is null go. */
export function changed(pairs: readonly RawPair[], values: ReadonlyMap<string, RawPair | null>): RawPair[] {
  const same = pairs
    .filter(({ key }) => !OF_PARTS.test(key))
    .flatMap((pair) => {
      const found = values.get(pair.key);
      return found === undefined ? [pair] : found === null ? [] : [found];
    });
  const known = new Set(pairs.map(({ key }) => key));
  const added = [...values].flatMap(([key, pair]) => (pair && !known.has(key) ? [pair] : []));
  return [...same, ...added];
}

export const pair = rawPair;

/** Bytes that are read at a time. */
const CHUNK = 4 << 20;

export function newGguf(
  opening: Opening,
  { alignment }: Pick<Gguf, "alignment">,
  pairs: readonly RawPair[],
  tensors: readonly NewTensor[],
): NewFile {
  const sized = tensors.map(({ name, dims, type, parts }) => ({
    name,
    dims,
    type,
    bytes: parts.reduce((sum, part) => sum + length(part), 0),
  }));
  const { header, offsets, size } = layOut(pairs, sized, alignment);
  async function* stream({ signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Uint8Array> {
    const files = await opened(opening, signal);
    try {
      yield header;
      let at = header.length;
      for (const [i, { parts }] of tensors.entries()) {
        if (offsets[i]! > at) yield new Uint8Array(offsets[i]! - at);
        at = offsets[i]!;
        for (const part of parts) {
          at += length(part);
          if (part instanceof Uint8Array) yield part;
          else yield* ranged(files.weights[part.file]!, part, signal);
        }
      }
      if (size > at) yield new Uint8Array(size - at);
    } finally {
      await Promise.all(files.weights.map((source) => source.close()));
    }
  }
  return { size, stream };
}

/** The model's own file, byte by byte. */
export function sameFile(opening: Opening, files: readonly Source[]): NewFile | null {
  if (files.length !== 1) return null;
  const { size } = files[0]!;
  async function* stream({ signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Uint8Array> {
    const again = await opened(opening, signal);
    try {
      yield* ranged(again.weights[0]!, { file: 0, offset: 0, length: size }, signal);
    } finally {
      await Promise.all(again.weights.map((source) => source.close()));
    }
  }
  return { size, stream };
}

async function* ranged(source: Source, range: Range, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  const { offset, length, unit = 1, patches = [], change } = range;
  const piece = Math.max(unit, Math.floor(CHUNK / unit) * unit);
  for (let at = 0; at < length; at += piece) {
    const read = await source.read(offset + at, Math.min(piece, length - at), signal ? { signal } : {});
    const bytes = patches.length > 0 ? patched(read, offset + at, patches) : read;
    yield change ? change(bytes) : bytes;
  }
}

/** A copy of the bytes at `from`, with those of the patches that meet them. */
function patched(bytes: Uint8Array, from: number, patches: readonly Patch[]): Uint8Array {
  const copy = bytes.slice();
  for (const { offset, bytes: own } of patches) {
    const [begin, end] = [Math.max(offset, from), Math.min(offset + own.length, from + copy.length)];
    if (begin < end) copy.set(own.subarray(begin - offset, end - offset), begin - from);
  }
  return copy;
}

/** The whole file in memory, for a load that nothing is written for. */
export async function toBlob(file: NewFile, signal?: AbortSignal): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for await (const bytes of file.stream({ signal })) parts.push(bytes.slice() as Uint8Array<ArrayBuffer>);
  const blob = new Blob(parts);
  if (blob.size !== file.size)
    throw new EngineError("Internal", `the new file has ${blob.size} bytes, not ${file.size}`);
  return blob;
}
