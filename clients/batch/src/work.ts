/** A worker: takes chunks of one model's jobs, answers their lines and puts the answers into the shared folder. */

import { type Answered, EngineError, type Line } from "ternlight/batch";
import { JobFolder } from "./folder.ts";
import { addChunks, type ChunkQueue, type ChunkWorker, openQueue, openWorker, type Taken } from "./queue.ts";

/** What answers lines: `openAnswerer` of `ternlight/batch` gives one. */
export interface Answering {
  identity: string;
  lines: {
    answer(line: Line, signal?: AbortSignal): Promise<Answered>;
    lost(line: Line, message: string): Promise<Answered>;
  };
}

/** What became of a chunk. */
export interface WorkEvent {
  job: string;
  chunk: number;
  line?: number;
  /** `known` was done before, `cancelled` is not wanted any more, `split` goes on line by line, `lost` ended too many workers. */
  what: "answered" | "known" | "cancelled" | "split" | "lost";
  lines: number;
  ms: number;
}

export interface WorkOptions {
  /** `redis://…`, `rediss://…` or `postgres://…` */
  queue: string;
  /** A folder that all machines see. */
  folder: string;
  model: Answering;
  /** Chunks at once: with two, the engine's batch stays full where one ends. @default 2 */
  chunks?: number;
  /** Seconds after which a worker that gives no sign of life loses its chunks. @default 30 */
  lease?: number;
  onEvent?: (event: WorkEvent) => void;
  /** Hears of what goes wrong and is tried again. */
  onError?: (error: Error) => void;
}

export interface Work {
  /** Takes no more chunks, and resolves when those under way are done. */
  close(): Promise<void>;
}

/** Workers that a chunk may end before its lines go their own ways, and that a line may end then. */
const [MOST_CRASHES, MOST_ALONE] = [2, 4];
/** Milliseconds before answers are kept again where that failed: on a full disk, in a folder that is away. */
const AGAIN_MS = 1000;

export async function work(options: WorkOptions): Promise<Work> {
  const { queue: url, model, chunks = 2, lease = 30, onError = () => {} } = options;
  const queue = await openQueue(url, model.identity);
  const closing = new AbortController();
  const run = (job: Taken) => take(job, { ...options, queue, onError, closing: closing.signal });
  const worker: ChunkWorker = openWorker(url, model.identity, run, { concurrency: chunks, lease, onError });
  return {
    async close() {
      closing.abort();
      await worker.close();
      await queue.close();
    },
  };
}

interface Context extends Omit<WorkOptions, "queue" | "onError"> {
  queue: ChunkQueue;
  onError(error: Error): void;
  closing: AbortSignal;
}

async function take(taken: Taken, context: Context): Promise<string> {
  const begun = performance.now();
  const { data } = taken;
  const { job, chunk, line } = data;
  const folder = await JobFolder.open(context.folder, job);
  const what = await done(taken, folder, context);
  const lines = line === undefined ? folder.size(chunk) : 1;
  context.onEvent?.({ ...data, what, lines, ms: performance.now() - begun });
  return what;
}

async function done({ data, ...taken }: Taken, folder: JobFolder, context: Context): Promise<WorkEvent["what"]> {
  const { chunk, line } = data;
  if (await folder.cancelled()) return "cancelled";
  if ((await folder.has(chunk)) || (line !== undefined && (await folder.has(chunk, line)))) return "known";
  // Beginnings whose end nobody has heard of.
  const crashes = taken.attemptsStarted - 1 - taken.attemptsMade;
  if (line === undefined && (crashes > MOST_CRASHES || (await folder.isSplit(chunk)))) {
    await folder.split(chunk);
    const lines = Array.from({ length: folder.size(chunk) }, (_, line) => ({ ...data, line }));
    await addChunks(context.queue, lines, folder.info.priority);
    return "split";
  }
  const { lines } = context.model;
  const all = await folder.lines(chunk);
  const wanted = line === undefined ? all : [all[line]!];
  const lost = line !== undefined && crashes > MOST_ALONE;
  const message = `${crashes} workers ended while they worked on the line`;
  const answers = await Promise.all(wanted.map((one) => (lost ? lines.lost(one, message) : lines.answer(one))));
  await keep(folder, answers, data, context);
  return lost ? "lost" : "answered";
}

/** What was computed is not given up because a disk is full: it is kept as soon as there is room. */
async function keep(folder: JobFolder, answers: Answered[], { chunk, line }: Taken["data"], context: Context) {
  for (;;) {
    try {
      return await folder.keep(answers, chunk, line);
    } catch (error) {
      if (context.closing.aborted) throw error;
      const { path } = folder;
      const message = `${path} takes no answers: ${(error as Error).message}; trying again`;
      context.onError(new EngineError("Unwritable", message, { file: path }, { cause: error }));
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}
