/** Queues of chunks on BullMQ, in Redis or PostgreSQL as the URL says. There is one for all that gets the same answers. */

import { type JobsOptions, Queue, UnrecoverableError, Worker, type WorkerOptions } from "bullmq";
import { EngineError } from "ternlight/batch";
import { postgresBackend } from "./postgres.ts";
import type { ChunkRef } from "./store.ts";
import { isPostgres, shownUrl } from "./url.ts";

/** What stands for a chunk: which lines they are lies in the store. */
export interface ChunkJob extends ChunkRef {
  job: string;
}

/** What a worker is told of a job. */
export interface Taken {
  data: ChunkJob;
  /** How often a worker has begun it, this time included, and how often one has ended it with an error. */
  attemptsStarted: number;
  attemptsMade: number;
}

export interface ChunkQueue {
  addBulk(jobs: { name: string; data: ChunkJob; opts: JobsOptions }[]): Promise<unknown>;
  getJobCounts(...states: string[]): Promise<Record<string, number>>;
  getJobs(states: string[], from: number, to: number, oldestFirst: boolean): Promise<{ timestamp: number }[]>;
  remove(id: string): Promise<number>;
  /** @param limit how many at most; 0 is all */
  clean(ms: number, limit: number, state: "failed"): Promise<unknown>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  isPaused(): Promise<boolean>;
  close(): Promise<void>;
}

export interface ChunkWorker {
  close(): Promise<void>;
}

/** Milliseconds in which a broker has to answer the first time. */
const READY_MS = 5000;
/** Workers that may end over a chunk before its lines go their own ways are counted here, so the queue does not give it up. */
const STALLS = 1_000_000;
/** Why an entry of a queue is tried no more: it counts as failed from then on. */
export const hopeless = (message: string): Error => new UnrecoverableError(message);
export const isHopeless = (error: unknown): boolean => error instanceof UnrecoverableError;

interface Selecting {
  select(database: number): Promise<unknown>;
}

export const queueName = (identity: string): string => `ternlight-${identity}`;
export const chunkId = ({ job, chunk, line }: ChunkJob): string =>
  `${job}-${chunk}${line === undefined ? "" : `-${line}`}`;

/** How to reach what a URL names, for a queue or for a worker. */
function reach(url: string, persistent: boolean): [object, unknown?] {
  const { protocol } = URL.canParse(url) ? new URL(url) : { protocol: "" };
  if (isPostgres(url)) {
    return [{ connection: { connectionString: url, migrate: true } }, postgresBackend];
  }
  if (["redis:", "rediss:"].includes(protocol)) {
    return [{ connection: { url, ...(persistent ? { maxRetriesPerRequest: null } : {}) } }];
  }
  const expected = "redis://…, rediss://… or postgres://…";
  throw new EngineError("InvalidArgument", `the queue must be ${expected}`, { option: "queue", expected });
}

/** @param identity null opens none, and leaves nothing there: it says whether the broker answers */
export async function openQueue(url: string, identity: string | null): Promise<ChunkQueue> {
  const [options, backend] = reach(url, false);
  const settings = { ...options, ...(identity === null ? { skipMetasUpdate: true } : {}) };
  const queue = new Queue(queueName(identity ?? "none"), settings as never, backend as never);
  // What fails is told by the call that meets it, or by why there is no answer.
  let failure: Error | undefined;
  queue.on("error", (error) => {
    failure ??= error;
  });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const why = () => (failure ? `: ${failure.message || (failure as NodeJS.ErrnoException).code}` : "");
    timer = setTimeout(() => reject(new Error(`no answer in ${READY_MS / 1000} s${why()}`)), READY_MS);
  });
  try {
    await Promise.race([queue.waitUntilReady(), late]);
    // Redis goes on with its first database where it refuses another.
    const database = isPostgres(url) ? "" : new URL(url).pathname.slice(1);
    if (database !== "") await ((await queue.getBackend().client) as unknown as Selecting).select(Number(database));
  } catch (cause) {
    void queue.close().catch(() => {});
    const message = `${shownUrl(url)} is no queue that answers: ${(cause as Error).message}`;
    throw new EngineError("Network", message, { option: "queue" }, { cause });
  } finally {
    clearTimeout(timer);
  }
  return queue as unknown as ChunkQueue;
}

export interface WorkerSettings {
  concurrency: number;
  /** Seconds after which a worker that gives no sign of life loses its chunks. */
  lease: number;
  onError(error: Error): void;
}

export function openWorker(
  url: string,
  identity: string,
  process: (job: Taken) => Promise<string>,
  { concurrency, lease, onError }: WorkerSettings,
): ChunkWorker {
  const [options, backend] = reach(url, true);
  const ms = 1000 * lease;
  const settings: Partial<WorkerOptions> = {
    concurrency,
    lockDuration: ms,
    stalledInterval: ms,
    maxStalledCount: STALLS,
    runRetryDelay: Math.min(ms, 5000),
  };
  const worker = new Worker(
    queueName(identity),
    process as never,
    { ...options, ...settings } as never,
    backend as never,
  );
  worker.on("error", onError);
  worker.on("failed", (_, error) => onError(error));
  return worker;
}

/** Adds chunks. One that is there already is not added twice. */
export async function addChunks(queue: ChunkQueue, chunks: readonly ChunkJob[], priority?: number): Promise<void> {
  const jobs = chunks.map((data) => ({
    name: "chunk",
    data,
    opts: {
      jobId: chunkId(data),
      // What is done is in the store.
      removeOnComplete: true,
      // Without a delay: its end would be told by the clock of the worker.
      attempts: STALLS,
      ...(priority === undefined ? {} : { priority }),
    },
  }));
  await queue.addBulk(jobs);
}
