/**
 * One file of a cache, for one file on a server:
 *
 *     head        4096 bytes: what this is, as JSON; at its end whether a writer came to its end, and the whole file's SHA-256
 *     marks       32 bytes a chunk: the SHA-256 of what is kept, zeros where nothing is
 *     data        chunks of 512 kB, each at its place
 *
 * Data is written before its mark, so that whatever ends a load leaves no mark without data. A power cut may: what a writer
 * that did not close has left is hashed when it is read for the first time.
 */

import type { Store, StoredFile } from "./store.ts";

export const CHUNK = 1 << 19;

const HEAD = 4096;
const WHOLE = HEAD - 32;
const UNCLOSED = WHOLE - 1;
const HASH = 32;

/** Says which file this is. The name of the cache's own file follows from it, and from the whole URL. */
export interface Identity {
  /** Without what may be secret in it. */
  url: string;
  size: number;
  /** The server's own word for this version: its ETag, or when it was last modified. */
  validator: string;
}

type Warn = (message: string) => void;

export const chunksOf = (size: number): number => Math.ceil(size / CHUNK);

/** What a file of a cache holds; null where it is none, or its head is damaged. */
export async function readHead(file: StoredFile) {
  const head = new Uint8Array(HEAD);
  if ((await file.read(head, 0)) !== HEAD) return null;
  const text = new TextDecoder().decode(head.subarray(0, UNCLOSED)).replace(/\0.*$/s, "");
  let identity: Identity & { format?: unknown };
  try {
    identity = JSON.parse(text);
  } catch {
    return null;
  }
  const { format, url, size, validator } = identity ?? {};
  if (format !== 2 || typeof url !== "string" || typeof validator !== "string") return null;
  if (!Number.isSafeInteger(size) || size < 0) return null;
  // A size that is damaged may be any.
  if (HEAD + HASH * chunksOf(identity.size) > file.size) return null;
  const marks = new Uint8Array(HASH * chunksOf(identity.size));
  if ((await file.read(marks, HEAD)) !== marks.length) return null;
  const isKept = (chunk: number) => marks.subarray(HASH * chunk, HASH * (chunk + 1)).some((byte) => byte !== 0);
  return { identity, marks, isKept, whole: head.slice(WHOLE), unclosed: head[UNCLOSED] !== 0 };
}

export class Entry {
  readonly name: string;
  readonly identity: Identity;
  readonly #store: Store;
  readonly #warn: Warn;
  readonly #marks: Uint8Array;
  #whole = new Uint8Array(HASH);
  /** Known to be what their marks say: left by a writer that closed, or hashed since. */
  readonly #sure = new Set<number>();
  readonly #damaged = new Set<number>();
  #unclosed = false;
  #inherited = false;
  /** What is in its place is of another version of this format, or damaged. */
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
    this.#marks = new Uint8Array(HASH * chunksOf(identity.size));
  }

  /** Nothing is made before there is something to keep. */
  static async open(store: Store, name: string, identity: Identity, warn: Warn): Promise<Entry> {
    const entry = new Entry(store, name, identity, warn);
    try {
      entry.#reader = await store.read(name);
      if (entry.#reader && !(await entry.#take(entry.#reader))) entry.#useless = true;
    } catch (error) {
      entry.#giveUp(error);
    }
    entry.#inherited = entry.#chunks().some((chunk) => entry.has(chunk));
    return entry;
  }

  get complete(): boolean {
    return this.#chunks().every((chunk) => this.has(chunk));
  }

  has(chunk: number): boolean {
    return this.#pending.has(chunk) || this.#mark(chunk).some((byte) => byte !== 0);
  }

  lengthOf(chunk: number): number {
    return Math.min(CHUNK, this.identity.size - chunk * CHUNK);
  }

  /** Fills `into`; false where the chunk is not there or not what it was, and from then on is missing. */
  async read(chunk: number, into: Uint8Array, verify: boolean): Promise<boolean> {
    await this.#pending.get(chunk);
    await this.#opening;
    if (!this.has(chunk)) return false;
    const file = this.#writer ?? this.#reader;
    // A file that another tab has changed since cannot be read any more.
    const length = await (async () => file?.read(into, this.#at(chunk)))().catch(() => 0);
    if (length === into.length) {
      if (!verify && this.#sure.has(chunk)) return true;
      const hash = await this.#store.digest(into);
      if (hash.every((byte, i) => byte === this.#mark(chunk)[i])) {
        this.#sure.add(chunk);
        return true;
      }
    }
    this.#mark(chunk).fill(0);
    this.#damaged.add(chunk);
    return false;
  }

  /** Done when it is, until when the bytes must stay as they are. Failing to keep them is not the load's failure. */
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
      this.#mark(chunk).set(hash);
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

  /** What is kept turned out to be wrong. True where some of it is from earlier loads, and may be right when it comes anew. */
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
    const sure = () => this.#chunks().every((chunk) => !this.has(chunk) || this.#sure.has(chunk));
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
    const missing = this.#chunks().reduce((sum, chunk) => sum + (this.has(chunk) ? 0 : this.lengthOf(chunk)), 0);
    // Before there is asked for room, which it may hold.
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
    const head = new Uint8Array(HEAD + this.#marks.length);
    head.set(new TextEncoder().encode(JSON.stringify({ format: 2, ...this.identity })));
    // Whoever reads stands in a writer's way.
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

  /** What a file says is kept; false where it is none of ours. What was found damaged stays missing. */
  async #take(file: StoredFile): Promise<boolean> {
    this.#marks.fill(0);
    const head = await readHead(file);
    const { size, validator } = this.identity;
    if (head?.identity.size !== size || head.identity.validator !== validator) return false;
    this.#marks.set(head.marks);
    for (const chunk of this.#damaged) this.#mark(chunk).fill(0);
    if (!head.unclosed) for (const chunk of this.#chunks()) this.#sure.add(chunk);
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

  /** Nothing of it counts any more; the file goes when nobody writes to it. */
  #leave(): void {
    this.#left = true;
    this.#marks.fill(0);
    this.#opening = Promise.resolve(null);
  }

  #chunks(): number[] {
    return Array.from({ length: chunksOf(this.identity.size) }, (_, chunk) => chunk);
  }

  #mark(chunk: number): Uint8Array {
    return this.#marks.subarray(HASH * chunk, HASH * (chunk + 1));
  }

  #at(chunk: number): number {
    return HEAD + this.#marks.length + chunk * CHUNK;
  }
}
