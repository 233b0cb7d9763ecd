/** Random-access bytes, wherever they lie. */

import { EngineError } from "../types/errors.ts";

export interface ReadOptions {
  signal?: AbortSignal;
}

export interface Source {
  /** For messages; its ending may tell the format. */
  readonly name: string;
  readonly size: number;
  /** Another one where the file was written anew: a server's validator, or a file's time. Absent where nothing tells. */
  readonly version?: string | null;
  /** Reads exactly these bytes. */
  read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array>;
  /** Reads these bytes in order, in pieces of any length. A piece is valid until the next is asked for. */
  stream(offset: number, length: number, options?: ReadOptions): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
  /** Compares the file's hash with the one that the caller gave; absent where none was given. */
  check?(options?: ReadOptions): Promise<void>;
  /** In a cache: the hash that the whole file was once found to have; null where it is not known. */
  readonly sha256?: Uint8Array | null;
  /** In a cache: keeps that hash. */
  remember?(sha256: Uint8Array): Promise<void>;
  /** In a cache: deletes the file, which is wrong; true where some of it is from an earlier load. */
  forget?(): Promise<boolean>;
  /** In a cache: waits until the server has said that what is kept is still its file; fails where it is not. */
  confirm?(): Promise<void>;
  /** In a cache: deletes earlier versions of the file. */
  dropEarlier?(): Promise<void>;
}

/** A runtime's file system; absent where it has none. */
export interface Paths {
  /** Bytes of the longest Blob that this runtime can read. */
  longestBlob: number;
  open(path: string): Promise<Source>;
  /** Names of the files in a folder; null where the path is none. */
  list(path: string): Promise<string[] | null>;
}

/** The bytes of a stream, whose number is known, in one array. */
export async function gather(pieces: AsyncIterable<Uint8Array>, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  let at = 0;
  for await (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** The error of a source that ended early. */
export function cutShort(name: string, offset: number, expected: number, found: number): EngineError {
  return new EngineError("Truncated", `${name}: expected ${expected} bytes from byte ${offset}, found ${found}`, {
    file: name,
    offset,
    expected: `${expected} bytes`,
    found: String(found),
  });
}
