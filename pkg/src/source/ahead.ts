/** Parts of a stream fetched at once, and passed on in order. */

export interface Part {
  offset: number;
  length: number;
}

/** A stretch in parts of at most so many bytes. Its end comes in shorter ones, so that its last bytes wait for no long part before them. */
export interface Parts extends Part {
  each: number;
}

/** Of the shortest parts: shorter ones would wait for answers more than for bytes. */
const LEAST = 512 << 10;

type Stream = (part: Part, signal: AbortSignal) => AsyncIterable<Uint8Array>;

/**
 * At most `count` parts are under way; each holds what came before its turn. A piece is valid until the next is asked for.
 */
export async function* inOrder({ offset, length, each }: Parts, count: number, stream: Stream, outer?: AbortSignal) {
  const control = new AbortController();
  const abort = () => control.abort(outer!.reason);
  outer?.addEventListener("abort", abort);
  const buffers = Array.from({ length: Math.min(count, Math.ceil(length / each)) }, () => new Uint8Array(each));
  const under: Prefetcher[] = [];
  let [at, left, next] = [offset, length, 0];
  try {
    while (left > 0 || under.length > 0) {
      while (left > 0 && under.length < buffers.length) {
        const part = { offset: at, length: Math.min(left, each, Math.max(LEAST, Math.ceil(left / (2 * count)))) };
        under.push(new Prefetcher(stream(part, control.signal), buffers[next++ % buffers.length]!));
        at += part.length;
        left -= part.length;
      }
      for (let piece = await under[0]!.take(); piece; piece = await under[0]!.take()) yield piece;
      under.shift();
    }
  } finally {
    outer?.removeEventListener("abort", abort);
    control.abort();
    await Promise.all(under.map(({ over }) => over));
  }
}

/** Reads on while nothing is taken, into a buffer as long as the part. */
class Prefetcher {
  readonly over: Promise<void>;
  readonly #buffer: Uint8Array;
  #came = 0;
  #taken = 0;
  #wake = () => {};
  #ended = false;
  #error: unknown = null;

  constructor(pieces: AsyncIterable<Uint8Array>, buffer: Uint8Array) {
    this.#buffer = buffer;
    this.over = this.#run(pieces);
  }

  /** What has come since the last time; null at the end. */
  async take(): Promise<Uint8Array | null> {
    while (this.#taken === this.#came && !this.#ended) await new Promise<void>((resolve) => (this.#wake = resolve));
    const piece = this.#buffer.subarray(this.#taken, this.#came);
    this.#taken = this.#came;
    if (piece.length > 0) return piece;
    if (this.#error) throw this.#error;
    return null;
  }

  async #run(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const piece of pieces) {
        this.#buffer.set(piece, this.#came);
        this.#came += piece.length;
        this.#wake();
      }
    } catch (error) {
      this.#error = error;
    }
    this.#ended = true;
    this.#wake();
  }
}
