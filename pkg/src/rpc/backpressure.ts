/**
 * Flow control for the pieces of a generation. Three parties share it:
 *
 *     worker: Sender ── pieces ──▶ owner: Receiver ──▶ reader: Acknowledger
 *            ◀────────────── `read` control: pieces read so far ──────────────
 *
 * The worker pauses a generation when a window of pieces is unread, and continues when half of them are read. The reader
 * acknowledges every quarter of a window, so a reader that keeps up never lets the worker pause.
 */

/** Pieces that may be unread before their generation pauses. */
export const WINDOW = 256;
/** A paused generation continues when no more than this many pieces are unread. */
const RESUME = WINDOW / 2;
/** The reader acknowledges after this many pieces. */
const ACKNOWLEDGE = WINDOW / 4;

/** Acknowledges all pieces, those to come included: the generation never pauses again. */
export const ALL_PIECES: number = Number.MAX_SAFE_INTEGER;

/** The worker's end: decides when a generation pauses and when it continues. */
export class Sender {
  readonly #onPause: (paused: boolean) => void;
  #sent = 0;
  #read = 0;
  #paused = false;

  /** @param onPause is called with true when the generation has to pause, and with false when it may continue */
  constructor(onPause: (paused: boolean) => void) {
    this.#onPause = onPause;
  }

  /** @param total pieces sent so far */
  sent(total: number): void {
    this.#sent = total;
    this.#update();
  }

  /** @param total pieces that the reader has read so far, or `ALL_PIECES` */
  read(total: number): void {
    this.#read = total;
    this.#update();
  }

  #update(): void {
    const unread = this.#sent - this.#read;
    const paused = this.#paused ? unread > RESUME : unread >= WINDOW;
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#onPause(paused);
  }
}

/**
 * The owner's end: knows whether the worker may be waiting for the reader. Then nobody waits for the worker, and the call
 * must not keep the process alive.
 */
export class Receiver {
  #received = 0;
  #read = 0;

  /** @param count pieces that have just arrived */
  received(count: number): void {
    this.#received += count;
  }

  /** @param total pieces read so far, or `ALL_PIECES` */
  read(total: number): void {
    this.#read = total;
  }

  get idle(): boolean {
    return this.#received - this.#read > RESUME;
  }
}

/** The reader's end: counts what is read and acknowledges it now and then. */
export class Acknowledger {
  readonly #send: (total: number) => void;
  #read = 0;
  #acknowledged = 0;

  /** @param send tells the other end how many pieces are read so far, or `ALL_PIECES` */
  constructor(send: (total: number) => void) {
    this.#send = send;
  }

  /** More pieces are read. */
  read(count = 1): void {
    this.#read += count;
    if (this.#read >= this.#acknowledged + ACKNOWLEDGE) this.#acknowledge(this.#read);
  }

  /** Nobody reads piece by piece any more: the generation runs to its end. */
  all(): void {
    this.#acknowledge(ALL_PIECES);
  }

  #acknowledge(total: number): void {
    if (total <= this.#acknowledged) return;
    this.#acknowledged = total;
    this.#send(total);
  }
}
