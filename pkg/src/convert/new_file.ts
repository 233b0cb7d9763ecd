/** Files that get their name when they are whole. */

import { randomBytes } from "node:crypto";
import {
  close,
  closeSync,
  constants,
  fchmod,
  fsync,
  ftruncate,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  write,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";

const { O_CREAT, O_EXCL, O_RDWR, O_NOFOLLOW = 0 } = constants;

/** For the owner alone, whatever the umask allows. */
const PRIVATE = 0o600;
const PART = /^\.ternlight-[0-9a-f]{32}\.part$/;
/** Milliseconds after which a part that nothing was written to is one that a killed program left. */
const ABANDONED = 3_600_000;

/**
 * A file that is written under another name in the same folder. That name is random and the file is made anew: it follows no link and
 * opens no file that someone else has put there.
 */
export class NewFile {
  /** The name that it gets. */
  readonly target: string;
  readonly #part: string;
  readonly #file: number;
  #open = true;

  private constructor(target: string, part: string, file: number) {
    this.target = target;
    this.#part = part;
    this.#file = file;
  }

  /** In one step, so that a program that ends knows whether there is something to discard. */
  static create(target: string): NewFile {
    // A name that ends like a folder's is none of a file.
    const folder = target.endsWith("/") || target.endsWith(path.sep) ? target : path.dirname(target);
    removeAbandoned(folder);
    const part = path.join(folder, `.ternlight-${randomBytes(16).toString("hex")}.part`);
    return new NewFile(target, part, openSync(part, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, PRIVATE));
  }

  truncate(size: number): Promise<void> {
    return promisify(ftruncate)(this.#file, size);
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let at = 0; at < bytes.length; ) at += await this.#writeSome(bytes.subarray(at), position + at);
  }

  #writeSome(bytes: Uint8Array, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      write(this.#file, bytes, 0, bytes.length, position, (error, count) => (error ? reject(error) : resolve(count)));
    });
  }

  /** Waits until the medium has everything. */
  flush(): Promise<void> {
    return promisify(fsync)(this.#file);
  }

  /** Gives it its name, in place of what was there. A private file stays its owner's; any other may be read as the umask says. */
  async finish(how: { private: boolean }): Promise<void> {
    if (!how.private) await promisify(fchmod)(this.#file, 0o666 & ~process.umask());
    this.#open = false;
    await promisify(close)(this.#file);
    renameSync(this.#part, this.target);
  }

  /** Leaves nothing behind; also while a program ends. */
  discard(): void {
    if (this.#open) closeSync(this.#file);
    this.#open = false;
    rmSync(this.#part, { force: true });
  }
}

/** Deletes what programs that were killed left in a folder. */
function removeAbandoned(folder: string): void {
  for (const name of names(folder)) {
    if (!PART.test(name)) continue;
    const part = path.join(folder, name);
    const found = lstatSync(part, { throwIfNoEntry: false });
    if (!found?.isFile() || found.uid !== (process.getuid?.() ?? found.uid)) continue;
    if (Date.now() - found.mtimeMs > ABANDONED) rmSync(part, { force: true });
  }
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
