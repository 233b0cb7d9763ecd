/** Queues of chunks on BullMQ, in Redis or PostgreSQL as the URL says. There is one for all that gets the same answers. */

import { createPostgresBackend, type JobsOptions, Queue, Worker, type WorkerOptions } from "bullmq";
import { EngineError } from "ternlight/batch";
import { shortenLeases } from "./leases.ts";

/** What stands for a chunk: which lines they are lies in the shared folder. */
export interface ChunkJob {
  job: string;
  chunk: number;
  /** The one line of the chunk that is meant, of a chunk that ended its workers. */
  line?: number;
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
  remove(id: string): Promise<number>;
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
/** Milliseconds before a chunk that failed is tried again. */
const AGAIN_MS = 1000;

export const queueName = (identity: string): string => `ternlight-${identity}`;
export const chunkId = ({ job, chunk, line }: ChunkJob): string =>
  `${job}-${chunk}${line === undefined ? "" : `-${line}`}`;

/** The URL without what is secret in it. */
export function shownUrl(url: string): string {
  try {
    const { protocol, host, pathname } = new URL(url);
    return `${protocol}//${host}${pathname}`;
  } catch {
    return "the queue's URL";
  }
}

const isPostgres = (url: string): boolean => /^postgres(ql)?:/i.test(url);

/** How to reach what a URL names, for a queue or for a worker. */
function reach(url: string, persistent: boolean): [object, unknown?] {
  const { protocol } = URL.canParse(url) ? new URL(url) : { protocol: "" };
  if (isPostgres(url)) {
    return [{ connection: { connectionString: url, migrate: true } }, createPostgresBackend];
  }
  if (["redis:", "rediss:"].includes(protocol)) {
    return [{ connection: { url, ...(persistent ? { maxRetriesPerRequest: null } : {}) } }];
  }
  const expected = "redis://…, rediss://… or postgres://…";
  throw new EngineError("InvalidArgument", `the queue must be ${expected}`, { option: "queue", expected });
}

export async function openQueue(url: string, identity: string): Promise<ChunkQueue> {
  const [options, backend] = reach(url, false);
  const queue = new Queue(queueName(identity), options as never, backend as never);
  // What fails is told by the call that meets it.
  queue.on("error", () => {});
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${READY_MS / 1000} s`)), READY_MS);
  });
  try {
    await Promise.race([queue.waitUntilReady(), late]);
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
  const leases = isPostgres(url) ? shortenLeases(url, queueName(identity), ms, onError) : null;
  return {
    async close() {
      await worker.close();
      await leases?.close();
    },
  };
}

/** Adds chunks. One that is there already is not added twice. */
export async function addChunks(queue: ChunkQueue, chunks: readonly ChunkJob[], priority?: number): Promise<void> {
  const jobs = chunks.map((data) => ({
    name: "chunk",
    data,
    opts: {
      jobId: chunkId(data),
      // What is done is in the folder.
      removeOnComplete: true,
      attempts: STALLS,
      backoff: { type: "fixed", delay: AGAIN_MS },
      ...(priority === undefined ? {} : { priority }),
    },
  }));
  await queue.addBulk(jobs);
}
