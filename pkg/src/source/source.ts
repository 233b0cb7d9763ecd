/** Random-access bytes, wherever they lie. */

import { EngineError } from "../types/errors.ts";
import { BlobSource } from "./blob.ts";
import { HttpSource } from "./http.ts";
import type { Vouchers } from "./integrity.ts";
import type { HttpOptions, UrlSpec } from "./request.ts";
import type { FileSpec } from "./spec.ts";

export interface ReadOptions {
  signal?: AbortSignal;
}

export interface Source {
  /** For messages, and for what its ending tells. */
  readonly name: string;
  readonly size: number;
  /** Exactly these bytes. */
  read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array>;
  /** These bytes in order, in pieces of any length. A piece is valid until the next is asked for. */
  stream(offset: number, length: number, options?: ReadOptions): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
  /** Compares what the file hashes to with what the caller said, where one did. */
  check?(options?: ReadOptions): Promise<void>;
  /**
   * Of caches: the hash that the whole file was once found to have; keeps one; lets go of what is wrong, and says if some was old;
   * lets go of earlier versions.
   */
  readonly sha256?: Uint8Array | null;
  remember?(sha256: Uint8Array): Promise<void>;
  forget?(): Promise<boolean>;
  settle?(): Promise<void>;
}

/** How files are opened. */
export interface Opening {
  paths?: Paths | undefined;
  signal?: AbortSignal | undefined;
  http?: HttpOptions;
  /** Files on servers, by a way of its own. */
  url?(spec: UrlSpec): Promise<Source>;
  /** Lets go of what was kept of a file; true where some of it is from earlier loads. */
  forget?(file: string): Promise<boolean>;
  /** What was opened has made a model: earlier versions of it may go. */
  settle?(): Promise<void>;
  vouchers?: Vouchers | undefined;
}

/** A runtime's file system; absent where it has none. */
export interface Paths {
  open(path: string): Promise<Source>;
  /** Names of the files in a folder; null where the path is none. */
  list(path: string): Promise<string[] | null>;
}

export async function open(spec: FileSpec, { paths, signal, http, url }: Opening): Promise<Source> {
  switch (spec.kind) {
    case "bytes":
      return new BlobSource(new Blob([spec.bytes as Uint8Array<ArrayBuffer>]), spec.name ?? "bytes");
    case "blob":
      return new BlobSource(spec.blob, spec.name);
    case "handle":
      return new BlobSource(await spec.handle.getFile(), spec.handle.name);
    case "path":
      if (!paths) throw new EngineError("InvalidArgument", "this runtime has no file paths", { file: spec.path });
      return paths.open(spec.path);
    case "url":
      if (url && /^https?:/i.test(spec.url)) return url(spec);
      return (await HttpSource.open(spec, http, signal)).source;
  }
}

/** What a stream of so many bytes brings, in one. */
export async function gather(pieces: AsyncIterable<Uint8Array>, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  let at = 0;
  for await (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** What a source that ended early throws. */
export function cutShort(name: string, offset: number, expected: number, found: number): EngineError {
  return new EngineError("Truncated", `${name}: expected ${expected} bytes from byte ${offset}, found ${found}`, {
    file: name,
    offset,
    expected: `${expected} bytes`,
    found: String(found),
  });
}
