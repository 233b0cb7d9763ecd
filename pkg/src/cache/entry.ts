/**
 * One file of a cache, for one file on a server:
 *
 *     head        4096 bytes: what this is, as JSON; at its end whether a writer came to its end, and the whole file's SHA-256
 *     marks       32 bytes a chunk: the SHA-256 of what is kept, zeros where nothing is
 *     data        chunks of 1 MiB, each at its place
 *
 * Data is written before its mark, so that whatever ends a load leaves no mark without data. A power cut may: what a writer
 * that did not close has left is hashed when it is read for the first time.
 */

import type { Store, StoredFile } from "./store.ts";

export const CHUNK = 1 << 20;

const HEAD = 4096;
const WHOLE = HEAD - 32;
const UNCLOSED = WHOLE - 1;
const HASH = 32;
/** Hashes under way while the next chunks come. */
const MOST_PENDING = 4;

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

export async function digest(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

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
  if (identity?.format !== 1 || !Number.isSafeInteger(identity.size)) return null;
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
  #reader: StoredFile | null = null;
  #writer: StoredFile | null = null;
  #opening: Promise<StoredFile | null> | null = null;
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
      if (entry.#reader) await entry.#take(entry.#reader);
    } catch (error) {
      await entry.#giveUp(error);
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
    const file = this.#writer ?? this.#reader;
    if (!file || !this.has(chunk)) return false;
    // A file that another tab has changed since cannot be read any more.
    const length = await (async () => file.read(into, this.#at(chunk)))().catch(() => 0);
    if (length === into.length) {
      if (!verify && this.#sure.has(chunk)) return true;
      const hash = await digest(into);
      if (hash.every((byte, i) => byte === this.#mark(chunk)[i])) {
        this.#sure.add(chunk);
        return true;
      }
    }
    this.#mark(chunk).fill(0);
    this.#damaged.add(chunk);
    return false;
  }

  /** Takes a copy; failing to keep it is not the load's failure. */
  async keep(chunk: number, bytes: Uint8Array): Promise<void> {
    const file = await this.#write();
    if (!file) return;
    const work = (async () => {
      // What comes instead of a damaged chunk may differ: only the hash of the whole can tell, and must be made anew.
      if (!this.#unclosed) file.write(Uint8Array.of(1, ...new Uint8Array(HASH)), UNCLOSED);
      this.#unclosed = true;
      file.write(bytes, this.#at(chunk));
      // The call itself has copied the bytes.
      const hash = await digest(bytes);
      file.write(hash, HEAD + HASH * chunk);
      this.#mark(chunk).set(hash);
      this.#damaged.delete(chunk);
      this.#sure.add(chunk);
    })().catch((error) => this.#giveUp(error));
    this.#pending.set(chunk, work);
    void work.then(() => this.#pending.delete(chunk));
    if (this.#pending.size >= MOST_PENDING) await Promise.race(this.#pending.values());
  }

  /** The SHA-256 that the whole file was once found to have; null where it was not asked, or chunks are new since. */
  get whole(): Uint8Array | null {
    return !this.#unclosed && this.#damaged.size === 0 && this.#whole.some((byte) => byte !== 0) ? this.#whole : null;
  }

  async remember(whole: Uint8Array): Promise<void> {
    await Promise.all(this.#pending.values());
    const file = this.complete ? await this.#write() : null;
    file?.write(whole, WHOLE);
  }

  /** What is kept turned out to be wrong. True where some of it is from earlier loads, and may be right when it comes anew. */
  async forget(): Promise<boolean> {
    await Promise.all(this.#pending.values());
    this.#marks.fill(0);
    this.#let();
    this.#opening = Promise.resolve(null);
    await this.#store.remove(this.name).catch(() => {});
    return this.#inherited;
  }

  async close(): Promise<void> {
    await Promise.all(this.#pending.values());
    const sure = () => this.#chunks().every((chunk) => !this.has(chunk) || this.#sure.has(chunk));
    const file = this.#unclosed && sure() ? await this.#write() : null;
    // A load does not wait for the medium, where it need not.
    void (async () => {
      await file?.flush();
      file?.write(Uint8Array.of(0), UNCLOSED);
    })()
      .catch(() => {})
      .then(() => this.#let());
  }

  /** Opens for writing, once; null where that cannot be. */
  #write(): Promise<StoredFile | null> {
    this.#opening ??= this.#openWriter().catch(async (error) => {
      await this.#giveUp(error);
      return null;
    });
    return this.#opening;
  }

  async #openWriter(): Promise<StoredFile | null> {
    const { url } = this.identity;
    const missing = this.#chunks().reduce((sum, chunk) => sum + (this.has(chunk) ? 0 : this.lengthOf(chunk)), 0);
    const room = await this.#store.room();
    if (room !== null && room < missing) {
      this.#warn(`${url} is not kept: it takes ${missing} bytes more, and storage has room for ${room}`);
      return null;
    }
    const file = await this.#store.write(this.name);
    if (!file) {
      this.#warn(`${url}: what arrives is not kept, because another tab is loading the same file`);
      return null;
    }
    // Another may have written, or deleted, since this was opened.
    if (!(await this.#take(file))) {
      file.empty();
      const head = new Uint8Array(HEAD + this.#marks.length);
      head.set(new TextEncoder().encode(JSON.stringify({ format: 1, ...this.identity })));
      file.write(head, 0);
    }
    this.#writer = file;
    return file;
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
  async #giveUp(error: unknown): Promise<void> {
    const full = /quota|ENOSPC|EDQUOT/i.test(`${(error as Error).name} ${(error as Error).message}`);
    const reason = full ? "storage is full" : (error as Error).message;
    this.#warn(`${this.identity.url} is not kept: ${reason}`);
    this.#let();
    this.#marks.fill(0);
    this.#opening = Promise.resolve(null);
    await this.#store.remove(this.name).catch(() => {});
  }

  #let(): void {
    this.#reader?.close();
    this.#writer?.close();
    this.#reader = this.#writer = null;
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
