/** Where the lines of jobs and their answers lie: a folder that all machines see, or the PostgreSQL database of the queue. */

import { createHash } from "node:crypto";
import { type Answered, EngineError, type Line } from "ternlight/batch";
import { toText } from "./records.ts";

export interface Place {
  /** `redis://…`, `rediss://…` or `postgres://…` */
  queue: string;
  /** A folder that all machines see. @default the database of a PostgreSQL queue */
  folder?: string | undefined;
}

/** What answers depend on, in words: `{"context length": 4096}`. Queues are told apart by a hash of it, which says nothing to people. */
export type Facts = Readonly<Record<string, string | number>>;

/** A worker that is attached to a queue, and what its answers depend on. */
export interface Attached {
  identity: string;
  /** The model's name. */
  model: string;
  facts: Facts;
}

export interface JobInfo {
  id: string;
  version: 1;
  /** Of all that the answers depend on beside the lines. */
  identity: string;
  /** The model's name, as the answers have it. */
  model: string;
  lines: number;
  /** Lines of a chunk. */
  chunk: number;
  chunks: number;
  priority?: number;
  /** What the identity is of, for people. */
  facts?: Facts;
}

/** A chunk, or one line of it. */
export interface ChunkRef {
  chunk: number;
  line?: number;
}

/** The lines of a job, and the answers that are there. */
export interface Job {
  readonly info: JobInfo;
  /** As messages name it. */
  readonly place: string;
  lines(chunk: number): Promise<Line[]>;
  has(chunk: number, line?: number): Promise<boolean>;
  /** The answers to a chunk, or to all of its lines one by one; null while some are missing. */
  answers(chunk: number): Promise<Answered[] | null>;
  /** Keeps answers for good; where there are some, those stay. */
  keep(answers: readonly Answered[], chunk: number, line?: number): Promise<void>;
  /** From now on the lines of a chunk are worked on one by one. */
  split(chunk: number): Promise<void>;
  isSplit(chunk: number): Promise<boolean>;
  /** What has no answers of a range of chunks: whole chunks, and lines of those that were split. */
  missing(from: number, end: number): Promise<ChunkRef[]>;
  /** A worker begins what others have begun before; and has come to an end with it, whichever. */
  begin(worker: string, chunk: number, line?: number): Promise<void>;
  end(worker: string, chunk: number, line?: number): Promise<void>;
  /** The workers that began and came to no end. */
  begun(chunk: number, line?: number): Promise<string[]>;
  /** Forgets the answers to a chunk, and who began it. */
  forget(chunk: number): Promise<void>;
  /** How many chunks have all of their answers. */
  done(): Promise<number>;
  cancelled(): Promise<boolean>;
  cancel(): Promise<void>;
  resume(): Promise<void>;
}

export type JobState = "running" | "cancelled" | "done";

export async function stateOf(job: Job): Promise<{ state: JobState; done: number }> {
  const done = await job.done();
  if (done === job.info.chunks) return { state: "done", done };
  return { state: (await job.cancelled()) ? "cancelled" : "running", done };
}

export interface JobSettings {
  /** Of all that answers depend on beside the lines: `identity` of what `openAnswerer` gives. */
  identity: string;
  /** The model's name, as the answers have it. */
  model: string;
  /** Lines of a chunk. @default 32 */
  chunk?: number;
  /** Jobs with a lower number go first. @default in the order in which they came */
  priority?: number;
  /** What the identity is of, for people: `facts` of what `openAnswerer` gives. */
  facts?: Facts;
}

/** Hears which job some lines are before it is there. */
export type Admit = (info: JobInfo) => Promise<void>;

export interface Store {
  /** Rejects where it takes no jobs. */
  check(): Promise<void>;
  /** @param admit may refuse the job, of which nothing is there then */
  submit(lines: Chunks, settings: JobSettings, admit?: Admit): Promise<JobInfo>;
  open(id: string): Promise<Job>;
  /** All jobs, by their ids. */
  all(): Promise<Job[]>;
  /** A worker's sign of life; and its end. */
  beat(worker: string, attached: Attached): Promise<void>;
  leave(worker: string): Promise<void>;
  /** The workers that gave one a short while ago. */
  attached(): Promise<Attached[]>;
  /** Which of some workers gave one in the last milliseconds. */
  alive(workers: readonly string[], ms: number): Promise<string[]>;
  close(): Promise<void>;
}

export const isJobId = (id: unknown): id is string => typeof id === "string" && /^[0-9a-f]{32}$/.test(id);

export const sizeOf = ({ chunk: size, lines }: JobInfo, chunk: number): number => Math.min(size, lines - chunk * size);

export function noJob(id: string, place: string, why: string, cause?: unknown): EngineError {
  return new EngineError("NotFound", `there is no job ${id.slice(0, 100)} in ${place}: ${why}`, {}, { cause });
}

export const wasCancelled = ({ id: job }: JobInfo): EngineError =>
  new EngineError("Interrupted", `the job ${job} was cancelled; retry lets it go on`, { job });

const CHUNK = 32;
/** Characters of a chunk at most: whoever works on it has it in memory. */
const MAX_CHUNK = 256 * 2 ** 20;

/** The lines of a job on their way into a store, as the text of one chunk after another. */
export class Chunks {
  readonly size: number;
  readonly #rows: AsyncIterable<readonly Line[]>;
  readonly #hash = createHash("sha256");
  #lines = 0;

  constructor(rows: AsyncIterable<readonly Line[]>, size: number = CHUNK) {
    this.#rows = rows;
    this.size = size;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, undefined> {
    let texts: string[] = [];
    let characters = 0;
    const take = () => {
      const bytes = Buffer.from(texts.join(""));
      this.#hash.update(bytes);
      [texts, characters] = [[], 0];
      return bytes;
    };
    for await (const block of this.#rows) {
      for (const line of block) {
        const text = toText(line);
        this.#lines++;
        texts.push(text);
        characters += text.length;
        if (characters > MAX_CHUNK) throw tooLarge(this.#lines, texts.length);
        if (texts.length === this.size) yield take();
      }
    }
    if (texts.length > 0) yield take();
  }

  /** The job that all of these lines are. The same lines, model and options are the same job. */
  info({ identity, model, priority, facts: told }: JobSettings): JobInfo {
    const [chunk, lines] = [this.size, this.#lines];
    const facts = JSON.stringify([this.#hash.digest("hex"), chunk, identity, model]);
    const id = createHash("sha256").update(facts).digest("hex").slice(0, 32);
    const more = { ...(priority === undefined ? {} : { priority }), ...(told === undefined ? {} : { facts: told }) };
    return { id, version: 1, identity, model, lines, chunk, chunks: Math.ceil(lines / chunk), ...more };
  }
}

function tooLarge(line: number, lines: number): EngineError {
  const expected = `at most ${MAX_CHUNK} characters`;
  const message = `the ${lines} lines of the chunk that ends with line ${line} have more than ${MAX_CHUNK} characters: take smaller chunks`;
  return new EngineError("InvalidArgument", message, { option: "chunk", expected });
}
