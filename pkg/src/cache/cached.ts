import { gather, type ReadOptions, type Source } from "../source/source.ts";
import { CHUNK, type Entry } from "./entry.ts";

/** Chunks read, and hashed, while the one before is packed. */
const AHEAD = 4;
/** Chunks hashed and written while the next ones come. */
const BEHIND = 4;

export interface CachedOptions {
  /** Hash whatever is read from the cache. */
  verify: boolean;
  /** Deletes earlier versions of the file. */
  dropEarlier(): Promise<void>;
  /** Settles when the server has said whether this is still its file; absent where it has said so already. */
  current?: Promise<void> | undefined;
}

/** A file on a server through a cache: what is kept is read there, what is missing comes from the server and is kept. */
export class CachedSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #server: Source;
  readonly #entry: Entry;
  readonly #verify: boolean;
  readonly dropEarlier: () => Promise<void>;
  readonly #current: Promise<void>;
  /** The server has another file, or refuses this one. */
  #refused: Error | null = null;
  /** Reads of a chunk that is missing would ask for it twice if they did not wait for each other. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(server: Source, entry: Entry, { verify, dropEarlier, current = Promise.resolve() }: CachedOptions) {
    this.name = server.name;
    this.size = server.size;
    this.#server = server;
    this.#entry = entry;
    this.#verify = verify;
    this.dropEarlier = dropEarlier;
    this.#current = current;
    current.catch((error) => (this.#refused = error));
  }

  read(offset: number, length: number, options: ReadOptions = {}): Promise<Uint8Array> {
    const work = this.#turn.then(() => gather(this.stream(offset, length, options), length));
    this.#turn = work.catch(() => {});
    return work;
  }

  async *stream(offset: number, length: number, options: ReadOptions = {}): AsyncIterable<Uint8Array> {
    const end = offset + length;
    for (let at = offset; at < end; ) {
      if (this.#refused) throw this.#refused;
      const from = Math.floor(at / CHUNK);
      let to = from + 1;
      const kept = this.#entry.has(from);
      while (to * CHUNK < end && this.#entry.has(to) === kept) to++;
      for await (const [start, piece] of kept ? this.#kept(from, to, options) : this.#fetched(from, to, options)) {
        const part = piece.subarray(Math.max(0, at - start), Math.max(0, end - start));
        at += part.length;
        if (part.length > 0) yield part;
      }
    }
  }

  /** The hash that the whole file was found to have, while nothing of it is missing or new. */
  get sha256(): Uint8Array | null {
    const { whole } = this.#entry;
    return whole && this.#entry.complete ? whole : null;
  }

  remember(sha256: Uint8Array): Promise<void> {
    return this.#entry.remember(sha256);
  }

  confirm(): Promise<void> {
    return this.#current;
  }

  forget(): Promise<boolean> {
    return this.#entry.forget();
  }

  async close(): Promise<void> {
    await this.#turn;
    await this.#entry.close();
    await this.#server.close();
  }

  /** Ends early at a chunk that is damaged, which is missing from then on. */
  async *#kept(from: number, to: number, { signal }: ReadOptions): AsyncIterable<[number, Uint8Array]> {
    const buffers = Array.from({ length: Math.min(AHEAD, to - from) + 1 }, () => new Uint8Array(CHUNK));
    const ahead: Promise<Uint8Array | null>[] = [];
    const begin = async (chunk: number) => {
      const into = buffers[chunk % buffers.length]!.subarray(0, this.#entry.lengthOf(chunk));
      return (await this.#entry.read(chunk, into, this.#verify)) ? into : null;
    };
    try {
      for (let chunk = from, next = from; chunk < to; chunk++) {
        while (next < to && next < chunk + buffers.length) ahead.push(begin(next++));
        signal?.throwIfAborted();
        const bytes = await ahead.shift()!;
        if (!bytes || this.#refused) return;
        yield [chunk * CHUNK, bytes];
      }
    } finally {
      await Promise.all(ahead);
    }
  }

  /** Whole chunks are asked for, and passed on in pieces as they come. */
  async *#fetched(from: number, to: number, options: ReadOptions): AsyncIterable<[number, Uint8Array]> {
    const start = from * CHUNK;
    const slots = Array.from({ length: Math.min(BEHIND, to - from) }, () => ({
      buffer: new Uint8Array(CHUNK),
      done: Promise.resolve(),
    }));
    let [chunk, filled, at] = [from, 0, start];
    for await (const piece of this.#server.stream(start, Math.min(to * CHUNK, this.size) - start, options)) {
      for (let done = 0; done < piece.length; ) {
        const slot = slots[chunk % slots.length]!;
        if (filled === 0) await slot.done;
        const part = piece.subarray(done, done + this.#entry.lengthOf(chunk) - filled);
        slot.buffer.set(part, filled);
        filled += part.length;
        done += part.length;
        if (filled < this.#entry.lengthOf(chunk)) continue;
        slot.done = this.#entry.keep(chunk, slot.buffer.subarray(0, filled));
        [chunk, filled] = [chunk + 1, 0];
      }
      yield [at, piece];
      at += piece.length;
    }
  }
}
