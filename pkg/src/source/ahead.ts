/** Parts of a stream fetched at once, and passed on in order. */

export interface Part {
  offset: number;
  length: number;
}

type Stream = (part: Part, signal: AbortSignal) => AsyncIterable<Uint8Array>;

/** At most `count` parts are under way; each holds what came before its turn. */
export async function* inOrder(parts: Part[], count: number, stream: Stream, outer?: AbortSignal) {
  const control = new AbortController();
  const abort = () => control.abort(outer!.reason);
  outer?.addEventListener("abort", abort);
  const under: Pump[] = [];
  let next = 0;
  try {
    while (next < parts.length || under.length > 0) {
      while (next < parts.length && under.length < count) under.push(new Pump(stream(parts[next++]!, control.signal)));
      for (let piece = await under[0]!.take(); piece; piece = await under[0]!.take()) yield piece;
      under.shift();
    }
  } finally {
    outer?.removeEventListener("abort", abort);
    control.abort();
    await Promise.all(under.map((pump) => pump.over));
  }
}

/** Reads on while nobody waits. */
class Pump {
  readonly over: Promise<void>;
  readonly #pieces: Uint8Array[] = [];
  #wake = () => {};
  #ended = false;
  #error: unknown = null;

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.over = this.#run(pieces);
  }

  async take(): Promise<Uint8Array | null> {
    while (this.#pieces.length === 0 && !this.#ended) await new Promise<void>((resolve) => (this.#wake = resolve));
    const piece = this.#pieces.shift();
    if (!piece && this.#error) throw this.#error;
    return piece ?? null;
  }

  async #run(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const piece of pieces) {
        this.#pieces.push(piece);
        this.#wake();
      }
    } catch (error) {
      this.#error = error;
    }
    this.#ended = true;
    this.#wake();
  }
}
