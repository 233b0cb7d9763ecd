import { cutShort, type ReadOptions, type Source } from "./source.ts";

/** Bytes of one slice: large enough for speed, small enough that a few of them do not matter. */
const SLICE = 4 << 20;

/** A Blob or File, or bytes in memory. */
export class BlobSource implements Source {
  readonly name: string;
  readonly #blob: Blob;

  constructor(blob: Blob, name: string) {
    this.#blob = blob;
    this.name = name || "file";
  }

  get size(): number {
    return this.#blob.size;
  }

  async read(offset: number, length: number, { signal }: ReadOptions = {}): Promise<Uint8Array> {
    signal?.throwIfAborted();
    const bytes = new Uint8Array(await this.#blob.slice(offset, offset + length).arrayBuffer());
    if (bytes.length !== length) throw cutShort(this.name, offset, length, bytes.length);
    return bytes;
  }

  async *stream(offset: number, length: number, options?: ReadOptions): AsyncIterable<Uint8Array> {
    for (let at = 0; at < length; at += SLICE)
      yield await this.read(offset + at, Math.min(SLICE, length - at), options);
  }

  async close(): Promise<void> {}
}
