/** Puts a job's chunks into its queue, no more of them than are wanted soon, and writes the answers in the order of the lines. */

import type { Answered } from "ternlight/batch";
import { Adder, Patience, REST_MS } from "./adder.ts";
import { unserved } from "./attached.ts";
import { checkThere, Files } from "./files.ts";
import { withStore } from "./open_store.ts";
import { openQueue } from "./queue.ts";
import { type Job, type Place, type Store, wasCancelled } from "./store.ts";

export interface CollectOptions extends Place {
  job: string;
  /** The file of answers; it appears when it is whole. null only puts all chunks into the queue. */
  out: string | null;
  /** The file of lines without an answer. @default OUT.errors.jsonl, where there are such lines */
  errors?: string;
  /** Replaces files that are there with other answers than the job's. @default false */
  force?: boolean;
  /** Chunks that are in the queue or done, and not collected. @default 4096 */
  window?: number;
  /** Seconds for which a broker, a database or a network folder that is away is tried again. @default 600 */
  patience?: number;
  signal?: AbortSignal;
  onProgress?: (progress: Collected) => void;
  /** Hears of what goes wrong and is tried again. */
  onError?: (error: Error) => void;
  /** Hears that no worker is attached that may answer, and what differs in those that are near; again when the last one has gone. */
  onUnserved?: (message: string) => void;
}

export interface Collected {
  lines: number;
  failed: number;
  total: number;
}

/** Milliseconds between two looks for answers, and between two for chunks that the queue has lost. */
const [LOOK_MS, ADD_MS] = [200, 5000];

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export function collect(options: CollectOptions): Promise<Collected> {
  const { patience: seconds = 600, window = 4096, signal, onError, out } = options;
  return withStore(options, async (store) => {
    const job = await store.open(options.job);
    const queue = await openQueue(options.queue, job.info.identity);
    try {
      const patience = new Patience(seconds, onError);
      const adder = new Adder(options.queue, queue, job, window, patience);
      if (out !== null)
        return await inOrder(
          { ...options, window, out },
          new Answers(job, new Patience(seconds, onError), signal),
          adder,
          new Service(store, job, options.onUnserved),
        );
      while (!(await adder.upTo(job.info.chunks))) {
        await sleep(REST_MS);
        signal?.throwIfAborted();
      }
      await new Service(store, job, options.onUnserved).look();
      return { lines: 0, failed: 0, total: job.info.lines };
    } finally {
      await queue.close().catch(() => {});
    }
  });
}

interface InOrder extends CollectOptions {
  window: number;
  out: string;
}

async function inOrder(options: InOrder, job: Answers, adder: Adder, service: Service): Promise<Collected> {
  const { window, out, onProgress } = options;
  const { chunks, lines: total } = job.info;
  const collected: Collected = { lines: 0, failed: 0, total };
  const files = await Files.open(out, options);
  try {
    await checkThere(out, options, () => job.whole());
    for (let chunk = 0; chunk < chunks; chunk++) {
      const end = Math.min(chunks, chunk + window);
      await adder.upTo(end);
      const answers = await job.wait(chunk, async () => {
        await service.look();
        return adder.again(chunk, end);
      });
      await files.write(answers);
      collected.lines += answers.length;
      collected.failed += answers.filter(({ failed }) => failed).length;
      onProgress?.({ ...collected });
    }
    await files.finish(collected.failed > 0);
    return collected;
  } finally {
    await files.close();
  }
}

/** Whether somebody works on a job: without a worker of the same model and options it waits for ever. */
class Service {
  readonly #store: Store;
  readonly #job: Job;
  readonly #tell: ((message: string) => void) | undefined;
  #told = "";

  constructor(store: Store, job: Job, tell?: (message: string) => void) {
    this.#store = store;
    this.#job = job;
    this.#tell = tell;
  }

  async look(): Promise<void> {
    if (!this.#tell) return;
    // Whether the place is away is told by others.
    const attached = await this.#store.attached().catch(() => null);
    if (!attached) return;
    const message = unserved(this.#job.info, attached) ?? "";
    if (message !== "" && message !== this.#told) this.#tell(message);
    this.#told = message;
  }
}

/** The answers of a job, for which it waits. */
class Answers {
  readonly info: Job["info"];
  readonly #job: Job;
  readonly #patience: Patience;
  readonly #signal: AbortSignal | undefined;

  constructor(job: Job, patience: Patience, signal?: AbortSignal) {
    this.info = job.info;
    this.#job = job;
    this.#patience = patience;
    this.#signal = signal;
  }

  /** Whether all of them are there. */
  async whole(): Promise<boolean> {
    return (await this.#job.done()) === this.info.chunks;
  }

  /** @param again adds what the queue has lost; false where it is away */
  async wait(chunk: number, again: () => Promise<boolean>): Promise<Answered[]> {
    let next = performance.now() + ADD_MS;
    for (;;) {
      this.#signal?.throwIfAborted();
      const answers = await this.#look(chunk);
      if (answers) return answers;
      if (performance.now() >= next) next = performance.now() + ((await again()) ? ADD_MS : REST_MS);
      await sleep(LOOK_MS);
    }
  }

  async #look(chunk: number): Promise<Answered[] | null> {
    try {
      const answers = await this.#job.answers(chunk);
      const cancelled = answers === null && (await this.#job.cancelled());
      this.#patience.well();
      if (!cancelled) return answers;
    } catch (error) {
      this.#patience.failed(error);
      return null;
    }
    throw wasCancelled(this.info);
  }
}
