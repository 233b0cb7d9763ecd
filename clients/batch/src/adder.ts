/** Puts chunks that have no answers yet into their queue. */

import { EngineError } from "ternlight/batch";
import { addChunks, type ChunkQueue } from "./queue.ts";
import { type Job, wasCancelled } from "./store.ts";
import { shownUrl } from "./url.ts";

/** Chunks that are added at once. */
const BULK = 500;
/** Milliseconds between two tries of what is away. */
export const REST_MS = 1000;

/** What is said of a broker or a database that is away, and of a network folder: these come back. */
const AWAY = ["Network", "Unreadable"];

/** Bears with what is away for a while. */
export class Patience {
  readonly #ms: number;
  readonly #onError: ((error: Error) => void) | undefined;
  /** When what is away now failed first, and last. */
  #since: number | null = null;
  #last = 0;

  constructor(seconds: number, onError?: (error: Error) => void) {
    this.#ms = 1000 * seconds;
    this.#onError = onError;
  }

  /** Whether it has failed a moment ago. */
  get resting(): boolean {
    return this.#since !== null && performance.now() - this.#last < REST_MS;
  }

  /** @throws the error where nothing has gone well for too long, or where waiting is of no use */
  failed(error: unknown): void {
    if (!(error instanceof EngineError) || !AWAY.includes(error.code)) throw error;
    if (this.#since === null) {
      this.#since = performance.now();
      this.#onError?.(error);
    }
    this.#last = performance.now();
    if (this.#last - this.#since >= this.#ms) throw error;
  }

  well(): void {
    this.#since = null;
  }
}

export class Adder {
  readonly #url: string;
  readonly #queue: ChunkQueue;
  readonly #job: Job;
  readonly #patience: Patience;
  /** Chunks that are worth an addition. */
  readonly #least: number;
  #added = 0;

  /** @param window chunks that are going to be in the queue or done at most */
  constructor(url: string, queue: ChunkQueue, job: Job, window: number, patience: Patience) {
    this.#least = Math.min(BULK, Math.ceil(window / 2));
    this.#url = url;
    this.#queue = queue;
    this.#job = job;
    this.#patience = patience;
  }

  /** While the broker takes none, what is there is collected all the same: the next call tries again. @returns whether all are added */
  async upTo(end: number): Promise<boolean> {
    // Not for each chunk by itself.
    if (end - this.#added < this.#least && end < this.#job.info.chunks && this.#added > 0) return true;
    while (this.#added < end) {
      const next = Math.min(end, this.#added + BULK);
      if (!(await this.#add(this.#added, next))) return false;
      this.#added = next;
    }
    return true;
  }

  /** The queue may have lost what was in it: adding again does nothing for what is there. */
  async again(from: number, end: number): Promise<boolean> {
    const known = Math.min(end, this.#added);
    for (let at = from; at < known; at += BULK) {
      if (!(await this.#add(at, Math.min(known, at + BULK)))) return false;
    }
    return this.upTo(end);
  }

  async #add(from: number, end: number): Promise<boolean> {
    const { id, priority } = this.#job.info;
    if (this.#patience.resting) return false;
    try {
      const jobs = (await this.#job.missing(from, end)).map((ref) => ({ job: id, ...ref }));
      if (jobs.length > 0 && (await this.#job.cancelled())) throw wasCancelled(this.#job.info);
      if (jobs.length > 0) await addChunks(this.#queue, jobs, priority);
      this.#patience.well();
      return true;
    } catch (error) {
      this.#patience.failed(error instanceof EngineError ? error : this.#refused(error as NodeJS.ErrnoException));
      return false;
    }
  }

  #refused(cause: NodeJS.ErrnoException): EngineError {
    // An error of several addresses has no message of its own.
    const message = `${shownUrl(this.#url)} takes no chunks: ${cause.message || cause.code}`;
    return new EngineError("Network", message, { option: "queue" }, { cause });
  }
}
