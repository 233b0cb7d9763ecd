/** Parts of a stream fetched at once, and passed on in order. */

export interface Part {
  offset: number;
  length: number;
}

type Stream = (part: Part, signal: AbortSignal) => AsyncIterable<Uint8Array>;

/**
 * At most `count` parts are under way, none of them longer than the first; each holds what came before its turn. A piece is valid
 * until the next is asked for.
 */
export async function* inOrder(parts: Part[], count: number, stream: Stream, outer?: AbortSignal) {
  const control = new AbortController();
  const abort = () => control.abort(outer!.reason);
  outer?.addEventListener("abort", abort);
  const buffers = Array.from({ length: Math.min(count, parts.length) }, () => new Uint8Array(parts[0]!.length));
  const under: Pump[] = [];
  let next = 0;
  try {
    while (next < parts.length || under.length > 0) {
      while (next < parts.length && under.length < buffers.length) {
        const buffer = buffers[next % buffers.length]!;
        under.push(new Pump(stream(parts[next++]!, control.signal), buffer));
      }
      for (let piece = await under[0]!.take(); piece; piece = await under[0]!.take()) yield piece;
      under.shift();
    }
  } finally {
    outer?.removeEventListener("abort", abort);
    control.abort();
    await Promise.all(under.map((pump) => pump.over));
  }
}

/** Reads on while nobody waits, into a buffer as long as what comes. */
class Pump {
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
