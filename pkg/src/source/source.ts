/** Random-access bytes, wherever they lie. */

import { EngineError } from "../types/errors.ts";

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

/** A runtime's file system; absent where it has none. */
export interface Paths {
  open(path: string): Promise<Source>;
  /** Names of the files in a folder; null where the path is none. */
  list(path: string): Promise<string[] | null>;
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
