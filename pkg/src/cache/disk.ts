/** A directory as a store. Processes that keep the same file write the same bytes to the same places: nobody waits. */

import {
  closeSync,
  constants,
  fstatSync,
  fsync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  writeSync,
} from "node:fs";
import { readdir, rm, stat, statfs } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { Store, StoredFile } from "./store.ts";

const { O_RDONLY, O_RDWR, O_CREAT } = constants;

export async function openDirectory(directory = ownDirectory()): Promise<Store> {
  const at = (name: string) => path.join(directory, name);
  const open = (name: string, flags: number) => new DiskFile(openSync(at(name), flags, 0o600));
  return {
    names: () => readdir(directory).catch(() => []),
    async read(name) {
      try {
        return open(name, O_RDONLY);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
        throw error;
      }
    },
    async write(name) {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      return open(name, O_RDWR | O_CREAT);
    },
    async remove(name) {
      const there = await stat(at(name)).catch(() => null);
      await rm(at(name), { force: true });
      return there !== null;
    },
    async room() {
      const volume = await statfs(directory).catch(() => null);
      return volume && volume.bavail * volume.bsize;
    },
  };
}

/** As each system has it. */
function ownDirectory(): string {
  const { XDG_CACHE_HOME, LOCALAPPDATA } = process.env;
  const caches =
    XDG_CACHE_HOME ||
    (process.platform === "win32" && LOCALAPPDATA) ||
    path.join(homedir(), ...(process.platform === "darwin" ? ["Library", "Caches"] : [".cache"]));
  return path.join(caches, "ternlight");
}

class DiskFile implements StoredFile {
  readonly #file: number;
  #open = true;

  constructor(file: number) {
    this.#file = file;
  }

  get size(): number {
    return fstatSync(this.#file).size;
  }

  get written(): number {
    return fstatSync(this.#file).mtimeMs;
  }

  read(into: Uint8Array, at: number): number {
    let read = 0;
    while (read < into.length) {
      const more = readSync(this.#file, into, read, into.length - read, at + read);
      if (more === 0) break;
      read += more;
    }
    return read;
  }

  write(bytes: Uint8Array, at: number): void {
    for (let done = 0; done < bytes.length; ) {
      done += writeSync(this.#file, bytes, done, bytes.length - done, at + done);
    }
  }

  empty(): void {
    ftruncateSync(this.#file, 0);
  }

  flush(): Promise<void> {
    return new Promise((resolve) => fsync(this.#file, () => resolve()));
  }

  close(): void {
    if (this.#open) closeSync(this.#file);
    this.#open = false;
  }
}
