import { constants, type Stats } from "node:fs";
import { type FileHandle, open, readFile } from "node:fs/promises";
import path from "node:path";
import { EngineError, type ErrorCode } from "../types/errors.ts";
import { BlobSource } from "./blob.ts";
import { cutShort, type ReadOptions, type Source } from "./source.ts";

/** Bytes of one read: enough that the cost of a system call does not matter. */
const PIECE = 4 << 20;
/** Where Bun has the files that a single executable contains. They can be read whole, but not opened. */
const EMBEDDED = /^(\/\$bunfs|[A-Z]:[\\/]~BUN)[\\/]/;

/** A file by its path, read by position. */
export class FileSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly version: string;
  readonly #file: FileHandle;

  private constructor(name: string, { size, mtimeMs }: Stats, file: FileHandle) {
    this.name = name;
    this.size = size;
    this.version = String(mtimeMs);
    this.#file = file;
  }

  static async open(where: string): Promise<Source> {
    const name = path.basename(where);
    try {
      if (EMBEDDED.test(where)) return new BlobSource(new Blob([await readFile(where)]), name);
      // A pipe would be waited for until somebody writes to it.
      const file = await open(where, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
      const stat = await file.stat();
      if (stat.isFile()) return new FileSource(name, stat, file);
      await file.close();
      throw new Error("it is no regular file");
    } catch (cause) {
      const missing = ["ENOENT", "ENOTDIR"].includes((cause as NodeJS.ErrnoException).code ?? "");
      throw failed(name, missing ? "NotFound" : "Unreadable", cause);
    }
  }

  async read(offset: number, length: number, options: ReadOptions = {}): Promise<Uint8Array> {
    return this.#fill(new Uint8Array(length), offset, options);
  }

  async *stream(offset: number, length: number, options: ReadOptions = {}): AsyncIterable<Uint8Array> {
    const buffer = new Uint8Array(Math.min(PIECE, length));
    for (let at = 0; at < length; at += PIECE) {
      yield await this.#fill(buffer.subarray(0, Math.min(PIECE, length - at)), offset + at, options);
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #fill(buffer: Uint8Array, offset: number, { signal }: ReadOptions): Promise<Uint8Array> {
    let at = 0;
    while (at < buffer.length) {
      signal?.throwIfAborted();
      const { bytesRead } = await this.#file.read(buffer, at, buffer.length - at, offset + at).catch((cause) => {
        throw failed(this.name, "Unreadable", cause);
      });
      if (bytesRead === 0) throw cutShort(this.name, offset, buffer.length, at);
      at += bytesRead;
    }
    return buffer;
  }
}

function failed(file: string, code: ErrorCode, cause: unknown): EngineError {
  return new EngineError(code, `${file}: ${(cause as Error).message}`, { file }, { cause });
}
