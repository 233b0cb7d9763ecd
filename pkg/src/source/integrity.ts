/** Files that must be what the caller says they are. */

import { EngineError } from "../types/errors.ts";
import { type Hasher, Sha256 } from "./sha256.ts";
import type { ReadOptions, Source } from "./source.ts";

/** Of the whole file, or of each by its name. */
export type Integrity = string | Readonly<Record<string, string>>;

const SRI = /^sha256-([A-Za-z0-9+/]{43}=)$/;

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function toHex(hash: string): string {
  const base64 = SRI.exec(hash)?.[1];
  return base64 ? hex(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))) : hash.toLowerCase();
}

/** Asks for the hash of each file that is opened, and refuses those that nobody vouches for. */
export class Vouchers {
  readonly #integrity: Integrity;
  readonly #hasher: () => Hasher;
  #single: string | null = null;

  constructor(integrity: Integrity, hasher: (() => Hasher) | undefined) {
    this.#integrity = integrity;
    this.#hasher = hasher ?? (() => new Sha256());
  }

  guard(source: Source, file: string): Source {
    const integrity = this.#integrity;
    const option = { option: "integrity", file };
    if (typeof integrity !== "string") {
      const hash = Object.hasOwn(integrity, file) ? integrity[file] : undefined;
      if (hash) return new GuardedSource(source, toHex(hash), this.#hasher());
      throw new EngineError("InvalidArgument", `integrity has no hash of ${file || "a file without a name"}`, option);
    }
    this.#single ??= file;
    if (this.#single === file) return new GuardedSource(source, toHex(integrity), this.#hasher());
    const expected = "the hash of each file by its name";
    const reason = `integrity is one hash, and the model has several files (${this.#single}, ${file}): give ${expected}`;
    throw new EngineError("InvalidArgument", reason, { ...option, expected });
  }
}

/** Hashes what passes in the file's order, and at the end what has not passed. */
class GuardedSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #source: Source;
  readonly #expected: string;
  readonly #hasher: Hasher;
  #at = 0;

  constructor(source: Source, expected: string, hasher: Hasher) {
    this.name = source.name;
    this.size = source.size;
    this.#source = source;
    this.#expected = expected;
    this.#hasher = hasher;
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    const bytes = await this.#source.read(offset, length, options);
    this.#pass(offset, bytes);
    return bytes;
  }

  async *stream(offset: number, length: number, options?: ReadOptions): AsyncIterable<Uint8Array> {
    let at = offset;
    for await (const piece of this.#source.stream(offset, length, options)) {
      this.#pass(at, piece);
      yield piece;
      at += piece.length;
    }
  }

  async check(options?: ReadOptions): Promise<void> {
    if (this.#known) return;
    const from = this.#at;
    for await (const _ of this.stream(from, this.size - from, options));
    const found = this.#hasher.digest();
    if (hex(found) === this.#expected) return this.#source.remember?.(found);
    const kept = (await this.#source.forget?.()) ?? false;
    const [file, expected] = [this.name, `sha256 ${this.#expected}`];
    const reason = `${file} is not the file that was asked for: its SHA-256 is ${hex(found)}, not ${this.#expected}`;
    throw new EngineError("IntegrityMismatch", reason, { file, expected, found: `sha256 ${hex(found)}`, kept });
  }

  close(): Promise<void> {
    return this.#source.close();
  }

  /** A cache has hashed the same file before. */
  get #known(): boolean {
    const { sha256 } = this.#source;
    return sha256 != null && hex(sha256) === this.#expected;
  }

  #pass(offset: number, bytes: Uint8Array): void {
    if (offset > this.#at || offset + bytes.length <= this.#at || this.#known) return;
    this.#hasher.update(bytes.subarray(this.#at - offset));
    this.#at = offset + bytes.length;
  }
}
