/** Files of a run: written at places, synced, and locked against a second run. */

import { createHash } from "node:crypto";
import { writeSync } from "node:fs";
import { open, realpath, rename, stat } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import path from "node:path";
import { EngineError } from "../types/errors.ts";

export const unwritable = (file: string, cause: unknown, hint = ""): EngineError =>
  new EngineError("Unwritable", `${file} cannot be written: ${(cause as Error).message}${hint}`, { file }, { cause });

export type Handle = Awaited<ReturnType<typeof open>>;

/** A file that is written at places; what cannot be written is told with its name. */
export class Written {
  readonly path: string;
  readonly #handle: Handle;

  private constructor(file: string, handle: Handle) {
    this.path = file;
    this.#handle = handle;
  }

  /** Makes the file, or takes the one that is there; it is `size` bytes long then. */
  static async open(file: string, size: number): Promise<Written> {
    try {
      const handle = await open(file, size > 0 ? "r+" : "w+");
      const found = await handle.stat();
      if (found.size < size) {
        await handle.close();
        const detail = { file, expected: `at least ${size} bytes`, found: `${found.size} bytes` };
        throw new EngineError("Damaged", `${file} is shorter than its journal says`, detail);
      }
      await handle.truncate(size);
      return new Written(file, handle);
    } catch (cause) {
      throw cause instanceof EngineError ? cause : unwritable(file, cause);
    }
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    try {
      for (let at = 0; at < bytes.length; ) {
        const { bytesWritten } = await this.#handle.write(bytes, at, bytes.length - at, position + at);
        at += bytesWritten;
      }
    } catch (cause) {
      throw this.#unwritable(cause);
    }
  }

  /** The same in this thread, which waits for it: what goes to another thread is written later, and costs a way there and back. */
  writeNow(bytes: Uint8Array, position: number): void {
    try {
      for (let at = 0; at < bytes.length; ) {
        at += writeSync(this.#handle.fd, bytes, at, bytes.length - at, position + at);
      }
    } catch (cause) {
      throw this.#unwritable(cause);
    }
  }

  async sync(): Promise<void> {
    try {
      await this.#handle.datasync();
    } catch (cause) {
      throw this.#unwritable(cause);
    }
  }

  #unwritable(cause: unknown): EngineError {
    return unwritable(this.path, cause, "; what is done is kept");
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/** Gives a file its name for good: the folder is synced, too. */
export async function renameSynced(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (cause) {
    throw unwritable(to, cause);
  }
  await syncFolder(path.dirname(to));
}

export async function syncFolder(folder: string): Promise<void> {
  // Some systems open no folders; there the file system itself keeps names safe.
  const handle = await open(folder, "r").catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close();
}

/** Writes a file that is there whole or not at all. */
export async function writeWhole(file: string, text: string): Promise<void> {
  const made = `${file}.new`;
  try {
    const handle = await open(made, "w");
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (cause) {
    throw unwritable(made, cause);
  }
  await renameSynced(made, file);
}

export const exists = async (file: string): Promise<boolean> => (await stat(file).catch(() => null)) !== null;

/** Results are renamed to their names, which replaces files and fails, at the end of a run, at whatever else is there. */
export async function checkPlace(file: string): Promise<void> {
  const found = await stat(file).catch(() => null);
  if (found === null || found.isFile()) return;
  throw unwritable(file, new Error(found.isDirectory() ? "it is a folder" : "it is no regular file"));
}

/** The same name for a file whichever way it is named: a folder may be reached by several names. */
export async function nameOf(file: string): Promise<string> {
  const folder = await realpath(path.dirname(file)).catch(() => path.resolve(path.dirname(file)));
  return path.join(folder, path.basename(file));
}

export interface Lock {
  release(): void;
}

/** Holds a name until the process ends, however it ends; null where this system knows no such names. */
export async function lock(file: string): Promise<Lock | null> {
  const name = createHash("sha256")
    .update(await nameOf(file))
    .digest("hex")
    .slice(0, 32);
  const place = { linux: `\0ternlight-batch-${name}`, win32: `\\\\.\\pipe\\ternlight-batch-${name}` }[
    process.platform as string
  ];
  if (place === undefined) return null;
  const server = await new Promise<Server | NodeJS.ErrnoException>((resolve) => {
    const made = createServer((socket) => socket.destroy());
    made.once("error", resolve).listen(place, () => resolve(made));
  });
  if ("listen" in server) {
    server.unref();
    return { release: () => void server.close() };
  }
  if (server.code !== "EADDRINUSE") return null;
  throw new EngineError("Unwritable", `${file} is being written by another run`, { file });
}

export interface Locks extends Lock {
  /** Whether it is known that no other run holds any: some systems have no such names. */
  alone: boolean;
}

/** Holds all of some names, or none. */
export async function lockAll(files: readonly string[]): Promise<Locks> {
  const held: (Lock | null)[] = [];
  const release = () => {
    for (const one of held) one?.release();
  };
  try {
    for (const file of files) held.push(await lock(file));
  } catch (error) {
    release();
    throw error;
  }
  return { release, alone: !held.includes(null) };
}
