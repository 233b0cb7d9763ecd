/** One generation under way, as its caller sees it. */

import { Acknowledger } from "../rpc/backpressure.ts";
import { EngineError } from "../types/errors.ts";
import type { Finished, Generation, Piece } from "../types/index.ts";

/** Resolves when the next piece may be handed over. */
type Frame = () => Promise<void>;

/** The source of a generation's pieces. */
export interface Feed {
  finished: Promise<Finished>;
  stop(): void;
  /** Acknowledges pieces: how many were read so far, or `ALL_PIECES`. */
  read(pieces: number): void;
  /** The signal whose abort rejects it. */
  signal?: AbortSignal | undefined;
}

export class GenerationStream implements Generation {
  readonly #finished: Promise<Finished>;
  readonly #stop: () => void;
  readonly #reader: Acknowledger;
  readonly #signal: AbortSignal | undefined;
  readonly #frame: Frame | null;
  readonly #pieces: Piece[] = [];
  #ended = false;
  #failure: { reason: unknown } | null = null;
  #wake: (() => void) | null = null;
  #taken = false;

  /**
   * @param start begins the generation at once and pushes its pieces
   * @param frame where pieces are joined, what to wait for between two of them
   */
  constructor(start: (push: (pieces: Piece[]) => void) => Feed, frame: Frame | null = null) {
    this.#frame = frame;
    const feed = start((pieces) => {
      this.#pieces.push(...pieces);
      this.#wake?.();
    });
    this.#finished = feed.finished;
    this.#stop = feed.stop;
    this.#reader = new Acknowledger((pieces) => {
      if (!this.#ended) feed.read(pieces);
    });
    this.#signal = feed.signal;
    // This also handles the rejection for a caller who only iterates.
    feed.finished.then(
      () => this.#end(),
      (reason) => this.#end({ reason }),
    );
  }

  /** How a generation ends, for who does not wait for it. */
  static end(generation: GenerationStream): Promise<Finished> {
    return generation.#finished;
  }

  /** A caller who asks for it waits for the end, whether or not pieces are read. */
  get finished(): Promise<Finished> {
    this.#reader.all();
    return this.#finished;
  }

  stop(): void {
    if (!this.#ended) this.#stop();
  }

  [Symbol.asyncIterator](): AsyncGenerator<Piece, undefined> {
    const pieces = this.#iterate();
    const end = pieces.return.bind(pieces);
    // A generator that was not started yet runs no `finally` when it is ended.
    pieces.return = (value) => {
      this.stop();
      return end(value);
    };
    return pieces;
  }

  async *#iterate(): AsyncGenerator<Piece, undefined> {
    this.#take();
    try {
      for (;;) {
        // Checked here and not by the promise, which settles later: after an abort in the loop's body no further piece comes.
        if (!this.#ended) this.#signal?.throwIfAborted();
        const [count, piece] = this.#next();
        if (piece) {
          this.#reader.read(count);
          yield piece;
          await this.#frame?.();
        } else if (this.#failure) throw this.#failure.reason;
        else if (this.#ended) return;
        else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      this.stop();
    }
  }

  /** The next piece, and how many of those that came it is made of. */
  #next(): [count: number, piece: Piece | undefined] {
    const [first] = this.#pieces;
    if (!first || !this.#frame) return [1, this.#pieces.shift()];
    const other = this.#pieces.findIndex(({ index }) => index !== first.index);
    const all = this.#pieces.splice(0, other < 0 ? this.#pieces.length : other);
    return [all.length, all.reduce(join)];
  }

  async text(): Promise<string> {
    this.#take();
    return (await this.finished).text;
  }

  toReadableStream(): ReadableStream<Piece> {
    return this.#stream((piece) => piece);
  }

  textStream(): ReadableStream<Uint8Array<ArrayBuffer>> {
    const encoder = new TextEncoder();
    return this.#stream(({ text, index }) => (text === "" || index ? null : encoder.encode(text)));
  }

  /** @param shown what the stream gives of a piece; null for nothing */
  #stream<T>(shown: (piece: Piece) => T | null): ReadableStream<T> {
    const pieces = this[Symbol.asyncIterator]();
    return new ReadableStream<T>({
      async pull(controller) {
        for (let one = null; one === null; ) {
          const { done, value } = await pieces.next();
          if (done) return controller.close();
          one = shown(value);
          if (one !== null) controller.enqueue(one);
        }
      },
      async cancel() {
        await pieces.return(undefined);
      },
    });
  }

  #take(): void {
    if (this.#taken)
      throw new EngineError(
        "InvalidArgument",
        "a generation is read once: by for await, text(), textStream() or toReadableStream()",
      );
    this.#taken = true;
  }

  #end(failure: { reason: unknown } | null = null): void {
    this.#ended = true;
    this.#failure = failure;
    // After a failure, pieces that wait are dropped.
    if (failure) this.#pieces.length = 0;
    this.#wake?.();
  }
}

const join = (a: Piece, b: Piece): Piece => ({
  ...a,
  text: a.text + b.text,
  tokens: [...a.tokens, ...b.tokens],
  ...(a.logprobs && b.logprobs ? { logprobs: [...a.logprobs, ...b.logprobs] } : {}),
});
