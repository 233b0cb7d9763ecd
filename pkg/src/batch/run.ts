/** Works through a batch: lines go to workers as these have room for them, answers into the output. */

import { createHash } from "node:crypto";
import type { Answered, Line } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";
import type { Output } from "./output.ts";

export interface Worker {
  answer(line: Line, signal: AbortSignal): Promise<Answered>;
}

export interface Plan {
  rows: AsyncIterable<readonly Line[]>;
  workers: readonly Worker[];
  /** Lines that each worker has under way. */
  chunk: number;
  /** Lines beside these that wait in the queue of each worker's engine, so that it has no empty place while answers are written. */
  ahead?: number;
  output: Output;
  signal: AbortSignal;
  onProgress?(read: Read): void;
}

/** How much of the input was read. */
export interface Read {
  lines: number;
  /** That was all. */
  whole: boolean;
}

/** Chunks of each worker that may be done before a line that takes long. */
const BEFORE = 4;

export async function runBatch({ rows, workers, chunk, ahead = 0, output, signal, onProgress }: Plan): Promise<void> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  // Nobody waits for room that will never come.
  either.addEventListener("abort", () => output.wake());
  const feed = new Feed(rows, output, BEFORE * chunk * workers.length);
  const lane = async (worker: Worker) => {
    for (let line = await feed.next(either); line; line = await feed.next(either)) {
      output.put(line.index, await worker.answer(line, either));
      onProgress?.(feed.read);
    }
  };
  const lanes = workers.flatMap((worker) => Array.from({ length: chunk + ahead }, () => lane(worker)));
  const first = lanes.map((one) => one.catch((error) => failed.abort(error)));
  await Promise.all(first);
  await feed.close();
  if (either.aborted) throw either.reason;
}

/** Hands out the lines that have no answer yet, in order. */
class Feed {
  readonly #rows: AsyncIterator<readonly Line[]>;
  readonly #output: Output;
  readonly #window: number;
  #block: readonly Line[] = [];
  #at = 0;
  #ended = false;
  #reading: Promise<void> | null = null;
  #count = 0;
  #hash = "";
  /** Where the run that this one goes on with had come to. */
  readonly #from: { next: number; hash: string };

  constructor(rows: AsyncIterable<readonly Line[]>, output: Output, window: number) {
    this.#rows = rows[Symbol.asyncIterator]();
    this.#output = output;
    this.#window = window;
    this.#from = output.mark;
  }

  get read(): Read {
    return { lines: this.#count, whole: this.#ended };
  }

  async next(signal: AbortSignal): Promise<Line | null> {
    for (;;) {
      signal.throwIfAborted();
      const line = this.#block[this.#at];
      if (line === undefined) {
        if (this.#ended) return null;
        this.#reading ??= this.#read();
        await this.#reading;
      } else if (this.#output.takes(line.index, this.#window)) {
        this.#at++;
        this.#hash = hashed(this.#hash, line);
        if (!this.#isDone(line)) return line;
      } else await this.#output.room();
    }
  }

  async close(): Promise<void> {
    await this.#rows.return?.();
  }

  /** Also checks that the input is the one that the lines which are done came from. */
  #isDone(line: Line): boolean {
    const { next, hash } = this.#from;
    if (line.index < next - 1) return true;
    if (line.index === next - 1) {
      if (this.#hash !== hash) throw changed(`its first ${next} lines are others`);
      return true;
    }
    this.#output.begin(line.index, this.#hash);
    return this.#output.has(line.index);
  }

  async #read(): Promise<void> {
    try {
      const { done, value } = await this.#rows.next();
      this.#block = done ? [] : value;
      this.#at = 0;
      this.#ended = done === true;
      const last = this.#output.mark.next;
      if (done && this.#count < last) throw changed(`it has ${this.#count} lines, and ${last} were done`);
      this.#count += this.#block.length;
    } finally {
      this.#reading = null;
    }
  }
}

const changed = (why: string): EngineError =>
  new EngineError("SourceChanged", `the input is not the one that the journal is of: ${why}`, { option: "--resume" });

/** A chain, whose value at any line stands for all lines before. */
function hashed(before: string, { text, fault }: Line): string {
  const hash = createHash("sha256").update(before).update(text);
  if (fault) hash.update(`\n${fault.code}`);
  return hash.digest("base64");
}
