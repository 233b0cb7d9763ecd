/** Files that must be what the caller says they are. */

import { EngineError } from "../types/errors.ts";
import { type Hasher, Sha256 } from "./sha256.ts";
import { cutShort, gather, type ReadOptions, type Source } from "./source.ts";

/** The SHA-256 of the one file there is, or of each file by its name. */
export type Integrity = string | Readonly<Record<string, string>>;

const SRI = /^sha256-([A-Za-z0-9+/]{43}=)$/;

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function toHex(hash: string): string {
  const base64 = SRI.exec(hash)?.[1];
  return base64 ? hex(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))) : hash.toLowerCase();
}

/** Finds the hash of each file that is opened, and refuses files that no hash was given for. */
export class IntegrityChecks {
  readonly #integrity: Integrity;
  readonly #hasher: () => Hasher;
  #single: string | null = null;

  constructor(integrity: Integrity, hasher: (() => Hasher) | undefined) {
    this.#integrity = integrity;
    this.#hasher = hasher ?? (() => new Sha256());
  }

  /** The same source, which from here on hands out only bytes that are hashed. */
  wrap(source: Source, file: string): Source {
    const integrity = this.#integrity;
    const option = { option: "integrity", file };
    if (typeof integrity !== "string") {
      const hash = Object.hasOwn(integrity, file) ? integrity[file] : undefined;
      if (hash) return new CheckedSource(source, toHex(hash), this.#hasher);
      throw new EngineError("InvalidArgument", `integrity has no hash of ${file || "a file without a name"}`, option);
    }
    this.#single ??= file;
    if (this.#single === file) return new CheckedSource(source, toHex(integrity), this.#hasher);
    const expected = "the hash of each file by its name";
    const reason = `integrity is one hash, and the model has several files (${this.#single}, ${file}): give ${expected}`;
    throw new EngineError("InvalidArgument", reason, { ...option, expected });
  }
}

/** Bytes that are hashed and compared at once. Chunks of a cache are a multiple of it. */
const BLOCK = 256 << 10;

/**
 * Hands out whole blocks alone, and every block that it hands out is hashed on every reading:
 *
 * - A block that is read when all blocks before it have been hashed goes into the hash of the file. A copy of the hash's state before and
 *   after it is kept, so that a later reading can be compared without a second hash of every block.
 * - A block that is read earlier gets a hash of its own, which is compared when the hash of the file comes to it.
 *
 * A block that differs from an earlier reading of it ends the load, so a hash that comes out right at the end stands for all that was
 * handed out. A state takes some hundred bytes for each block that has arrived.
 */
class CheckedSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #source: Source;
  readonly #expected: string;
  readonly #hasher: () => Hasher;
  /** The hash of the file before each block; the last one stands where the next block is to be added. */
  readonly #states: Hasher[];
  /** Hashes of blocks that were read before their turn. */
  readonly #early = new Map<number, Uint8Array>();
  /** Whether all that was handed out so far came from a cache that had found this hash itself. */
  #fromCache = true;

  constructor(source: Source, expected: string, hasher: () => Hasher) {
    this.name = source.name;
    this.size = source.size;
    this.#source = source;
    this.#expected = expected;
    this.#hasher = hasher;
    this.#states = [hasher()];
  }

  read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    return gather(this.stream(offset, length, options), length);
  }

  async *stream(offset: number, length: number, options?: ReadOptions): AsyncIterable<Uint8Array> {
    if (length <= 0) return;
    const end = offset + length;
    const first = Math.floor(offset / BLOCK);
    const start = first * BLOCK;
    const rest = Math.min(Math.ceil(end / BLOCK) * BLOCK, this.size) - start;
    let buffer: Uint8Array | null = null;
    let [block, filled] = [first, 0];
    for await (const piece of this.#source.stream(start, rest, options)) {
      for (let done = 0; done < piece.length; ) {
        const expected = Math.min(BLOCK, this.size - block * BLOCK);
        const part = piece.subarray(done, done + expected - filled);
        done += part.length;
        let whole = part;
        if (part.length < expected) {
          // A piece that holds the block in full is handed out as it is.
          buffer ??= new Uint8Array(BLOCK);
          buffer.set(part, filled);
          filled += part.length;
          if (filled < expected) continue;
          whole = buffer.subarray(0, expected);
        }
        await this.#pass(block, whole);
        const at = block * BLOCK;
        [block, filled] = [block + 1, 0];
        yield whole.subarray(Math.max(0, offset - at), end - at);
      }
    }
    if (start + rest > block * BLOCK) throw cutShort(this.name, start, rest, block * BLOCK + filled - start);
  }

  async check(options?: ReadOptions): Promise<void> {
    if (this.#known) return;
    const from = Math.min((this.#states.length - 1) * BLOCK, this.size);
    for await (const _ of this.stream(from, this.size - from, options));
    const found = this.#states.at(-1)!.copy().digest();
    if (hex(found) === this.#expected) return this.#source.remember?.(found);
    const reason = `its SHA-256 is ${hex(found)}, not ${this.#expected}`;
    await this.#refuse(reason, { found: `sha256 ${hex(found)}` });
  }

  close(): Promise<void> {
    return this.#source.close();
  }

  /** Whether a cache has hashed the same file before, and all that was read came from there. */
  get #known(): boolean {
    const { sha256 } = this.#source;
    this.#fromCache &&= sha256 != null && hex(sha256) === this.#expected;
    return this.#fromCache;
  }

  async #pass(block: number, bytes: Uint8Array): Promise<void> {
    if (this.#known) return;
    const next = this.#states.length - 1;
    let same = true;
    if (block < next) {
      const again = this.#states[block]!.copy();
      again.update(bytes);
      same = equal(again.digest(), this.#states[block + 1]!.copy().digest());
    } else {
      const early = this.#early.get(block);
      if (block > next || early) {
        const own = this.#hasher();
        own.update(bytes);
        const hash = own.digest();
        same = !early || equal(hash, early);
        if (block > next) this.#early.set(block, hash);
      }
      if (block === next) {
        const state = this.#states[next]!.copy();
        state.update(bytes);
        this.#states.push(state);
        this.#early.delete(block);
      }
    }
    const offset = block * BLOCK;
    if (!same) await this.#refuse(`bytes from ${offset} on were others when they were read again`, { offset });
  }

  async #refuse(reason: string, detail: object): Promise<never> {
    const kept = (await this.#source.forget?.()) ?? false;
    const [file, expected] = [this.name, `sha256 ${this.#expected}`];
    const message = `${file} is not the file that was asked for: ${reason}`;
    throw new EngineError("IntegrityMismatch", message, { file, expected, ...detail, kept });
  }
}

const equal = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i]);
