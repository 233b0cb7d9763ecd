/** A worker: takes chunks of one model's jobs, answers their lines and puts the answers into the store. */

import { setTimeout } from "node:timers/promises";
import { type Answered, EngineError, type Line } from "ternlight/batch";
import { Beat } from "./attached.ts";
import { count, noCounts, type WorkCounts, type WorkEvent } from "./counts.ts";
import { openStore } from "./open_store.ts";
import {
  addChunks,
  type ChunkQueue,
  type ChunkWorker,
  hopeless,
  isHopeless,
  openQueue,
  openWorker,
  type Taken,
} from "./queue.ts";
import { type Facts, isJobId, type Job, type Place, type Store, sizeOf } from "./store.ts";

/** What answers lines: `openAnswerer` of `ternlight/batch` gives one. */
export interface Answering {
  identity: string;
  /** The model's name, and what the identity is of: whoever submits a job that nobody works on is told what differs. */
  name?: string;
  facts?: Facts;
  lines: {
    answer(line: Line, signal?: AbortSignal): Promise<Answered>;
    lost(line: Line, message: string): Promise<Answered>;
  };
}

export interface WorkOptions extends Place {
  model: Answering;
  /** Chunks at once: with two, the engine's batch stays full where one ends. @default 2 */
  chunks?: number;
  /** Seconds after which a worker that gives no sign of life loses its chunks. @default 30 */
  lease?: number;
  /** Seconds for which entries that failed for good stay in the queue. @default 604800 */
  dead?: number;
  onEvent?: (event: WorkEvent) => void;
  /** Hears of what goes wrong and is tried again. */
  onError?: (error: Error) => void;
}

export interface Work {
  readonly counts: WorkCounts;
  /** Takes no more chunks, and resolves when those under way are done. */
  close(): Promise<void>;
}

/**
 * Workers that a chunk may end before its lines go their own ways, and that a line may end then, beside the one that began it first, which
 * leaves no trace: most chunks are begun once, and cost nothing more.
 */
const [MAX_CRASHES, MAX_ALONE] = [1, 6];
/** Milliseconds before answers are kept again where that failed, on a full disk, in a folder that is away; and before a chunk that failed is given up, which another worker takes at once. */
const AGAIN_MS = 1000;
/** Jobs whose facts are in memory. */
const MAX_JOBS = 64;
/** Seconds for which entries that failed for good say why, and milliseconds between two looks for older ones. */
const [DEAD_S, CLEAN_MS] = [7 * 86_400, 3_600_000];

export async function work(options: WorkOptions): Promise<Work> {
  const { queue: url, model, chunks = 2, lease = 30, dead = DEAD_S } = options;
  const counts = noCounts();
  const onError = (error: Error) => {
    counts.errors++;
    options.onError?.(error);
  };
  const onEvent = (event: WorkEvent) => {
    count(counts, event);
    options.onEvent?.(event);
  };
  const store = await openStore(options);
  const queue = await openQueue(url, model.identity).catch(async (error) => {
    await store.close();
    throw error;
  });
  const closing = new AbortController();
  const { identity, name = "", facts = {} } = model;
  const beat = new Beat(store, { identity, model: name, facts }, 1000 * lease);
  const life = { store, worker: beat.id, silent: 1000 * lease };
  const context = { ...options, queue, jobs: new Jobs(store), life, onEvent, onError, closing: closing.signal };
  const worker: ChunkWorker = openWorker(url, model.identity, (job) => takeSlowly(job, context), {
    concurrency: chunks,
    lease,
    onError,
  });
  const cleaning = cleanEvery(queue, 1000 * dead);
  const close = async () => {
    closing.abort();
    clearInterval(cleaning);
    await worker.close();
    await beat.stop();
    await queue.close();
    await store.close();
  };
  let closed: Promise<void> | null = null;
  return {
    counts,
    close() {
      closed ??= close();
      return closed;
    },
  };
}

/** Takes entries away that failed for good long ago: BullMQ itself does so only when a further one fails. */
function cleanEvery(queue: ChunkQueue, ms: number): NodeJS.Timeout {
  // What fails is done the next time.
  const clean = () => void queue.clean(ms, 0, "failed").catch(() => {});
  clean();
  return setInterval(clean, Math.min(CLEAN_MS, ms));
}

interface Context extends Omit<WorkOptions, "queue" | "onEvent" | "onError"> {
  queue: ChunkQueue;
  jobs: Jobs;
  /** Its own name beside those of others, and the milliseconds after which a silent one is dead. */
  life: { store: Store; worker: string; silent: number };
  onEvent(event: WorkEvent): void;
  onError(error: Error): void;
  closing: AbortSignal;
}

/** The jobs that a worker met last. */
class Jobs {
  readonly #store: Store;
  readonly #open = new Map<string, Job>();

  constructor(store: Store) {
    this.#store = store;
  }

  async open(id: string): Promise<Job> {
    const job = this.#open.get(id) ?? (await this.#store.open(id));
    if (this.#open.size >= MAX_JOBS) this.#open.clear();
    this.#open.set(id, job);
    return job;
  }

  /** The job as it is now: one that was deleted counts as cancelled, and may have been submitted again. */
  async again(job: Job): Promise<Job> {
    const { id } = job.info;
    this.#open.delete(id);
    return this.open(id).catch((error) => {
      if (error.code !== "NotFound") throw error;
      return job;
    });
  }
}

/** What is in a queue may come from anybody who reaches it: it makes no path, and no statement, before it is known to be right. */
async function jobOf({ data }: Taken, { jobs, model }: Context): Promise<Job> {
  if (!isJobId(data.job)) throw hopeless("the entry names no job");
  const job = await jobs.open(data.job);
  const { chunks, identity } = job.info;
  const isIndex = (value: number, end: number) => Number.isInteger(value) && value >= 0 && value < end;
  if (!isIndex(data.chunk, chunks)) throw hopeless(`job ${data.job} has chunks 0 to ${chunks - 1}`);
  const size = sizeOf(job.info, data.chunk);
  if (data.line !== undefined && !isIndex(data.line, size)) throw hopeless(`chunk ${data.chunk} has ${size} lines`);
  if (identity !== model.identity) throw hopeless(`job ${data.job} is of another model, or of other options`);
  return job;
}

/** What fails is not tried again at once. */
async function takeSlowly(taken: Taken, context: Context): Promise<string> {
  try {
    return await take(taken, context);
  } catch (error) {
    if (!isHopeless(error)) await pause(AGAIN_MS, context.closing);
    throw error;
  }
}

const pause = (ms: number, signal: AbortSignal) => setTimeout(ms, undefined, { signal }).catch(() => {});

async function take(taken: Taken, context: Context): Promise<string> {
  const begun = performance.now();
  const { data } = taken;
  const { job: id, chunk, line } = data;
  const job = await jobOf(taken, context);
  let outcome = await done(taken, job, context);
  if (outcome.what === "cancelled") outcome = await done(taken, await context.jobs.again(job), context);
  const { what, answers = [] } = outcome;
  context.onEvent({
    job: id,
    chunk,
    ...(line === undefined ? {} : { line }),
    what,
    lines: line === undefined ? sizeOf(job.info, chunk) : 1,
    failed: answers.filter(({ failed }) => failed).length,
    retries: taken.attemptsStarted - 1,
    ms: performance.now() - begun,
  });
  return what;
}

interface Outcome {
  what: WorkEvent["what"];
  answers?: Answered[];
}

export async function done({ data, ...taken }: Taken, job: Job, context: Context): Promise<Outcome> {
  const { chunk, line } = data;
  if (await job.cancelled()) return { what: "cancelled" };
  if ((await job.has(chunk)) || (line !== undefined && (await job.has(chunk, line)))) return { what: "known" };
  // Beginnings whose end the queue has not heard of: a lease may be lost by one that is well, when a broker was away or a machine stood still.
  const again = taken.attemptsStarted - 1 - taken.attemptsMade > 0;
  if (!again) return answered({ data, ...taken }, job, context, 0);
  const { worker } = context.life;
  const crashes = await dead(job, context, chunk, line);
  // Where the place takes nothing, the answers cannot be kept either, and what was computed is not lost for it.
  await job.begin(worker, chunk, line).catch(() => {});
  try {
    return await answered({ data, ...taken }, job, context, crashes);
  } finally {
    await job.end(worker, chunk, line).catch(() => {});
  }
}

/** Workers that died while they worked on a chunk or a line: they came to no end with it, and give no sign of life. */
async function dead(job: Job, { life }: Context, chunk: number, line?: number): Promise<number> {
  const begun = (await job.begun(chunk, line)).filter((worker) => worker !== life.worker);
  if (begun.length === 0) return 0;
  return begun.length - (await life.store.alive(begun, life.silent)).length;
}

async function answered({ data }: Taken, job: Job, context: Context, crashes: number): Promise<Outcome> {
  const { chunk, line } = data;
  if (line === undefined && (crashes > MAX_CRASHES || (await job.isSplit(chunk)))) {
    await job.split(chunk);
    const lines = Array.from({ length: sizeOf(job.info, chunk) }, (_, line) => ({ ...data, line }));
    await addChunks(context.queue, lines, job.info.priority);
    return { what: "split" };
  }
  const { lines } = context.model;
  const all = await job.lines(chunk);
  const wanted = line === undefined ? all : [all[line]!];
  const lost = line !== undefined && crashes > MAX_ALONE;
  const message = `${crashes + 1} workers ended while they worked on the line`;
  const answers = await Promise.all(wanted.map((one) => (lost ? lines.lost(one, message) : lines.answer(one))));
  await keep(job, answers, data, context);
  return { what: lost ? "lost" : "answered", answers };
}

/** What was computed is not given up because a disk is full: it is kept as soon as there is room. */
async function keep(job: Job, answers: Answered[], { chunk, line }: Taken["data"], context: Context) {
  for (;;) {
    try {
      return await job.keep(answers, chunk, line);
    } catch (error) {
      if (context.closing.aborted) throw error;
      const { place } = job;
      const message = `${place} takes no answers: ${(error as Error).message}; trying again`;
      context.onError(new EngineError("Unwritable", message, { file: place }, { cause: error }));
      await pause(AGAIN_MS, context.closing);
    }
  }
}
