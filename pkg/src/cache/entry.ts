/**
 * One file of a cache, for one file on a server:
 *
 *     head        4096 bytes: which file this is, as JSON; at its end whether the last writer closed it, and the whole file's SHA-256
 *     marks       32 bytes a chunk: the SHA-256 of what is kept, zeros where nothing is
 *     data        chunks of 512 kB, each at its place
 *
 * Data is written before its mark, so that a load that ends early leaves no mark without data. A power cut may: what a writer
 * that did not close has left is hashed when it is read for the first time.
 *
 * Neither memory nor storage is taken for what has not arrived: marks of the chunks that are there are in a map, and the file of the
 * cache grows with its chunks, whatever size the server announced.
 */

import { FILE_LIMITS } from "../source/limits.ts";
import type { Store, StoredFile } from "./store.ts";

export const CHUNK = 1 << 19;

const HEAD = 4096;
const WHOLE = HEAD - 32;
const UNCLOSED = WHOLE - 1;
const HASH = 32;
/** Bytes of marks that are read at once. */
const MARKS = 64 << 10;

/** Which file this is. The name of the cache's own file follows from it, and from the whole URL. */
export interface Identity {
  /** Without what may be secret in it. */
  url: string;
  size: number;
  /** The server's own name of this version: its ETag, or when it was last modified. */
  validator: string;
  /** What the request was authorised by that began to keep it (`accessOf`). */
  access: string;
}

type Warn = (message: string) => void;

export const chunksOf = (size: number): number => Math.ceil(size / CHUNK);

export interface Head {
  identity: Identity;
  /** The hashes of the chunks that are there. */
  marks: Map<number, Uint8Array>;
  whole: Uint8Array;
  unclosed: boolean;
}

/** What a file of a cache holds; null where it is none, or its head is damaged. */
export async function readHead(file: StoredFile): Promise<Head | null> {
  const head = new Uint8Array(HEAD);
  if ((await file.read(head, 0)) !== HEAD) return null;
  const text = new TextDecoder().decode(head.subarray(0, UNCLOSED)).replace(/\0.*$/s, "");
  let identity: Identity & { format?: unknown };
  try {
    identity = JSON.parse(text);
  } catch {
    return null;
  }
  const { format, url, size, validator, access } = identity ?? {};
  if (format !== 3 || typeof url !== "string" || typeof validator !== "string" || typeof access !== "string")
    return null;
  // A size that is damaged may be any.
  if (!Number.isSafeInteger(size) || size < 0 || size > FILE_LIMITS.weights.size) return null;
  const marks = await readMarks(file, chunksOf(size));
  return {
    identity: { url, size, validator, access },
    marks,
    whole: head.slice(WHOLE),
    unclosed: head[UNCLOSED] !== 0,
  };
}

/** A file that ends among its marks has none behind its end. */
async function readMarks(file: StoredFile, chunks: number): Promise<Map<number, Uint8Array>> {
  const marks = new Map<number, Uint8Array>();
  const length = Math.min(HASH * chunks, file.size - HEAD);
  const buffer = new Uint8Array(Math.max(0, Math.min(MARKS, length)));
  for (let at = 0; at < length; at += MARKS) {
    const part = buffer.subarray(0, Math.min(MARKS, length - at));
    if ((await file.read(part, HEAD + at)) !== part.length) break;
    for (let from = 0; from + HASH <= part.length; from += HASH) {
      const mark = part.subarray(from, from + HASH);
      if (mark.some((byte) => byte !== 0)) marks.set((at + from) / HASH, mark.slice());
    }
  }
  return marks;
}

export class Entry {
  readonly name: string;
  readonly identity: Identity;
  readonly #store: Store;
  readonly #warn: Warn;
  readonly #chunks: number;
  #marks = new Map<number, Uint8Array>();
  #whole: Uint8Array = new Uint8Array(HASH);
  /** Chunks that are known to match their marks: left by a writer that closed, or hashed since. */
  readonly #sure = new Set<number>();
  readonly #damaged = new Set<number>();
  #unclosed = false;
  #inherited = false;
  /** The file in its place is of another version of this format, or damaged. */
  #useless = false;
  #left = false;
  #reader: StoredFile | null = null;
  #writer: StoredFile | null = null;
  #opening: Promise<StoredFile | null> | null = null;
  #begun: Promise<void> | null = null;
  #closing: Promise<void> | null = null;
  /** Its files are closed. */
  #ended: Promise<void> | null = null;
  /** Written, with the mark still to come. */
  readonly #pending = new Map<number, Promise<void>>();

  private constructor(store: Store, name: string, identity: Identity, warn: Warn) {
    this.#store = store;
    this.name = name;
    this.identity = identity;
    this.#warn = warn;
    this.#chunks = chunksOf(identity.size);
  }

  /**
   * Nothing is made before there is something to keep.
   *
   * @param file of this name, where a caller has opened it already
   */
  static async open(store: Store, name: string, identity: Identity, warn: Warn, file?: StoredFile): Promise<Entry> {
    const entry = new Entry(store, name, identity, warn);
    try {
      entry.#reader = file ?? (await store.read(name));
      if (entry.#reader && !(await entry.#take(entry.#reader))) entry.#useless = true;
    } catch (error) {
      entry.#giveUp(error);
    }
    entry.#inherited = entry.#marks.size > 0;
    return entry;
  }

  get complete(): boolean {
    let kept = this.#marks.size;
    for (const chunk of this.#pending.keys()) if (!this.#marks.has(chunk)) kept++;
    return kept === this.#chunks;
  }

  has(chunk: number): boolean {
    return this.#pending.has(chunk) || this.#marks.has(chunk);
  }

  lengthOf(chunk: number): number {
    return Math.min(CHUNK, this.identity.size - chunk * CHUNK);
  }

  /** Fills `into`; false where the chunk is not there or not what it was, and from then on is missing. */
  async read(chunk: number, into: Uint8Array, verify: boolean): Promise<boolean> {
    await this.#pending.get(chunk);
    await this.#opening;
    const mark = this.#marks.get(chunk);
    if (!mark) return false;
    const file = this.#writer ?? this.#reader;
    // A file that another tab has changed since cannot be read any more.
    const length = await (async () => file?.read(into, this.#at(chunk)))().catch(() => 0);
    if (length === into.length) {
      if (!verify && this.#sure.has(chunk)) return true;
      const hash = await this.#store.digest(into);
      if (hash.every((byte, i) => byte === mark[i])) {
        this.#sure.add(chunk);
        return true;
      }
    }
    this.#marks.delete(chunk);
    this.#damaged.add(chunk);
    return false;
  }

  /** Resolves when the chunk is kept; until then its bytes must stay as they are. A load does not fail because this does. */
  keep(chunk: number, bytes: Uint8Array): Promise<void> {
    const work = (async () => {
      const file = await this.#write();
      if (!file) return;
      // What comes instead of a damaged chunk may differ: only the hash of the whole can tell, and must be made anew.
      this.#unclosed = true;
      this.#begun ??= Promise.resolve(file.write(Uint8Array.of(1, ...new Uint8Array(HASH)), UNCLOSED));
      await this.#begun;
      const [hash] = await Promise.all([this.#store.digest(bytes), file.write(bytes, this.#at(chunk))]);
      await file.write(hash, HEAD + HASH * chunk);
      if (this.#left) return;
      this.#marks.set(chunk, hash);
      this.#damaged.delete(chunk);
      this.#sure.add(chunk);
    })()
      .catch((error) => this.#giveUp(error))
      .then(() => void this.#pending.delete(chunk));
    this.#pending.set(chunk, work);
    return work;
  }

  /** The SHA-256 that the whole file was once found to have; null where it was not asked, or chunks are new since. */
  get whole(): Uint8Array | null {
    return !this.#unclosed && this.#damaged.size === 0 && this.#whole.some((byte) => byte !== 0) ? this.#whole : null;
  }

  async remember(whole: Uint8Array): Promise<void> {
    await Promise.all(this.#pending.values());
    const file = this.complete ? await this.#write() : null;
    await file?.write(whole, WHOLE);
  }

  /** Deletes what is kept, which is wrong. True where some of it is from earlier loads: fetched again it may be right. */
  async forget(): Promise<boolean> {
    this.#leave();
    await this.close();
    await this.#ended;
    await this.#store.remove(this.name).catch(() => {});
    return this.#inherited;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await Promise.all(this.#pending.values());
    const sure = () => [...this.#marks.keys()].every((chunk) => this.#sure.has(chunk));
    const file = this.#unclosed && !this.#left && sure() ? await this.#write() : null;
    // A load does not wait for the medium, where it need not.
    const flushed = (async () => {
      await file?.flush();
      await file?.write(Uint8Array.of(0), UNCLOSED);
    })();
    this.#ended = flushed
      .catch(() => {})
      .then(() => {
        this.#reader?.close();
        this.#writer?.close();
        this.#reader = this.#writer = null;
      });
    // What was here before, and could not be opened, may be another's.
    if (!this.#left || !this.#begun) return;
    await this.#ended;
    await this.#store.remove(this.name).catch(() => {});
  }

  /** Opens for writing, once; null where that cannot be. */
  #write(): Promise<StoredFile | null> {
    this.#opening ??= this.#openWriter().catch((error) => {
      this.#giveUp(error);
      return null;
    });
    return this.#opening;
  }

  async #openWriter(): Promise<StoredFile | null> {
    const { url } = this.identity;
    const missing = [...this.#marks.keys()].reduce((sum, chunk) => sum - this.lengthOf(chunk), this.identity.size);
    // First, because it may hold the room that is asked for.
    if (this.#useless) {
      this.#reader?.close();
      this.#reader = null;
      await this.#store.remove(this.name).catch(() => {});
    }
    const room = await this.#store.room();
    if (room !== null && room < missing) {
      this.#warn(`${url} is not kept: it takes ${missing} bytes more, and storage has room for ${room}`);
      return null;
    }
    const head = new Uint8Array(HEAD);
    head.set(new TextEncoder().encode(JSON.stringify({ format: 3, ...this.identity })));
    // A reader would keep a writer out.
    this.#reader?.close();
    this.#reader = null;
    for (let tries = 0; tries < 2; tries++) {
      const file = await this.#store.write(this.name, head);
      if (!file) {
        this.#reader = await this.#store.read(this.name);
        this.#warn(`${url}: what arrives is not kept, because another tab is loading the same file`);
        return null;
      }
      // Another may have written, or deleted, since this was opened.
      if (await this.#take(file)) {
        this.#writer = file;
        return file;
      }
      file.close();
      await this.#store.remove(this.name);
    }
    throw new Error("its place cannot be written");
  }

  /** Takes over what a file has kept; false where it is not this file. Chunks that were found damaged stay missing. */
  async #take(file: StoredFile): Promise<boolean> {
    this.#marks.clear();
    const head = await readHead(file);
    const { size, validator } = this.identity;
    if (head?.identity.size !== size || head.identity.validator !== validator) return false;
    this.#marks = head.marks;
    for (const chunk of this.#damaged) this.#marks.delete(chunk);
    if (!head.unclosed) for (const chunk of this.#marks.keys()) this.#sure.add(chunk);
    this.#unclosed = head.unclosed;
    this.#whole = head.whole;
    return true;
  }

  /** Storage that is full, or forbidden, or gone: the load goes on without it. */
  #giveUp(error: unknown): void {
    if (this.#left) return;
    const full = /quota|ENOSPC|EDQUOT/i.test(`${(error as Error).name} ${(error as Error).message}`);
    const reason = full ? "storage is full" : (error as Error).message;
    this.#warn(`${this.identity.url} is not kept: ${reason}`);
    this.#leave();
  }

  /** Uses nothing of it any more; the file is deleted when nothing writes to it. */
  #leave(): void {
    this.#left = true;
    this.#marks.clear();
    this.#opening = Promise.resolve(null);
  }

  #at(chunk: number): number {
    return HEAD + HASH * this.#chunks + chunk * CHUNK;
  }
}
