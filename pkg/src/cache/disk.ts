/** A directory as a store. Processes that keep the same file write the same bytes to the same places: nobody waits. */

import { createHash, randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  write,
  writeSync,
} from "node:fs";
import { readdir, rm, stat, statfs } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { Store, StoredFile } from "./store.ts";

const { O_RDONLY, O_RDWR, O_CREAT, O_EXCL } = constants;
/** A link would lead out of the directory, and a pipe be waited for. Windows has neither flag. */
const PLAIN = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

export async function openDirectory(directory = ownDirectory()): Promise<Store> {
  const at = (name: string) => path.join(directory, name);
  const open = (name: string, flags: number) => {
    const file = openSync(at(name), flags | PLAIN, 0o600);
    if (fstatSync(file).isFile()) return new DiskFile(file);
    closeSync(file);
    throw new Error(`${name} is no regular file`);
  };
  return {
    names: () => readdir(directory).catch(() => []),
    async read(name) {
      return orNull(() => open(name, O_RDONLY));
    },
    async write(name, head) {
      const there = orNull(() => open(name, O_RDWR));
      if (there) return there;
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      // It has its name when it has its head. Of two that are made at once one stays; the other is its process's alone.
      const own = `.${randomUUID()}`;
      const made = open(own, O_RDWR | O_CREAT | O_EXCL);
      writeSync(made.file, head);
      renameSync(at(own), at(name));
      return made;
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
    // WebCrypto would copy the bytes first, into memory that waits for a collection: together that takes longer.
    digest: (bytes) => createHash("sha256").update(bytes).digest(),
  };
}

function orNull<T>(open: () => T): T | null {
  try {
    return open();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
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
  readonly file: number;
  #open = true;

  constructor(file: number) {
    this.file = file;
  }

  get size(): number {
    return fstatSync(this.file).size;
  }

  get written(): number {
    return fstatSync(this.file).mtimeMs;
  }

  read(into: Uint8Array, at: number): number {
    let read = 0;
    while (read < into.length) {
      const more = readSync(this.file, into, read, into.length - read, at + read);
      if (more === 0) break;
      read += more;
    }
    return read;
  }

  /** Not at once, as reading does: where much is written the system makes the writer wait for the disk. */
  async write(bytes: Uint8Array, at: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) done += await this.#writeSome(bytes.subarray(done), at + done);
  }

  #writeSome(bytes: Uint8Array, at: number): Promise<number> {
    return new Promise((resolve, reject) => {
      write(this.file, bytes, 0, bytes.length, at, (error, written) => (error ? reject(error) : resolve(written)));
    });
  }

  flush(): Promise<void> {
    return new Promise((resolve) => fsync(this.file, () => resolve()));
  }

  close(): void {
    if (this.#open) closeSync(this.file);
    this.#open = false;
  }
}
