/** Puts a job's chunks into its queue, no more of them than are wanted soon, and writes the answers in the order of the lines. */

import { open, rename, rm } from "node:fs/promises";
import path from "node:path";
import { type Answered, EngineError } from "ternlight/batch";
import { JobFolder, syncFolder } from "./folder.ts";
import { addChunks, type ChunkJob, type ChunkQueue, openQueue } from "./queue.ts";

export interface CollectOptions {
  queue: string;
  folder: string;
  job: string;
  /** The file of answers; it appears when it is whole. null only puts all chunks into the queue. */
  out: string | null;
  /** The file of lines without an answer. @default OUT.errors.jsonl, where there are such lines */
  errors?: string;
  /** Chunks that are in the queue or done, and not collected. @default 4096 */
  window?: number;
  signal?: AbortSignal;
  onProgress?: (progress: Collected) => void;
}

export interface Collected {
  lines: number;
  failed: number;
  total: number;
}

/** Milliseconds between two looks for answers, and between two for chunks that the queue has lost. */
const [LOOK_MS, ADD_MS] = [200, 5000];
/** Chunks that are added at once. */
const BULK = 500;

export async function collect(options: CollectOptions): Promise<Collected> {
  const folder = await JobFolder.open(options.folder, options.job);
  const queue = await openQueue(options.queue, folder.info.identity);
  try {
    const adder = new Adder(queue, folder);
    if (options.out === null) {
      await adder.add(0, folder.info.chunks);
      return { lines: 0, failed: 0, total: folder.info.lines };
    }
    return await inOrder(options, options.out, folder, adder);
  } finally {
    await queue.close().catch(() => {});
  }
}

async function inOrder(options: CollectOptions, out: string, folder: JobFolder, adder: Adder): Promise<Collected> {
  const { window = 4096, signal, onProgress } = options;
  const { chunks, lines: total } = folder.info;
  const files = new Files(out, options.errors);
  const collected: Collected = { lines: 0, failed: 0, total };
  try {
    await files.open();
    for (let chunk = 0; chunk < chunks; chunk++) {
      await adder.upTo(Math.min(chunks, chunk + window));
      const answers = await wait(folder, chunk, () => adder.again(chunk, Math.min(chunks, chunk + window)), signal);
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

async function wait(folder: JobFolder, chunk: number, again: () => Promise<void>, signal?: AbortSignal) {
  let added = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    const answers = await folder.answers(chunk);
    if (answers) return answers;
    if (await folder.cancelled()) {
      const message = `the job ${folder.info.id} was cancelled; retry lets it go on`;
      throw new EngineError("Interrupted", message, { job: folder.info.id });
    }
    if (performance.now() - added >= ADD_MS) {
      // A broker that is away now may be there again later.
      await again().catch(() => {});
      added = performance.now();
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** Adds chunks that have no answers yet. */
class Adder {
  readonly #queue: ChunkQueue;
  readonly #folder: JobFolder;
  #added = 0;

  constructor(queue: ChunkQueue, folder: JobFolder) {
    this.#queue = queue;
    this.#folder = folder;
  }

  async upTo(end: number): Promise<void> {
    // Not for each chunk by itself.
    if (end - this.#added < BULK && end < this.#folder.info.chunks && this.#added > 0) return;
    if (end <= this.#added) return;
    await this.add(this.#added, end);
    this.#added = end;
  }

  /** The queue may have lost what was in it: adding again does nothing for what is there. */
  again(from: number, end: number): Promise<void> {
    return this.add(from, Math.min(end, this.#added));
  }

  async add(from: number, end: number): Promise<void> {
    const { info } = this.#folder;
    let some: ChunkJob[] = [];
    for (let chunk = from; chunk < end; chunk++) {
      if (!(await this.#folder.has(chunk))) some.push(...(await this.#missing(chunk)));
      if (some.length >= BULK || chunk === end - 1) {
        if (some.length > 0) await addChunks(this.#queue, some, info.priority);
        some = [];
      }
    }
  }

  async #missing(chunk: number): Promise<ChunkJob[]> {
    const job = this.#folder.info.id;
    if (!(await this.#folder.isSplit(chunk))) return [{ job, chunk }];
    const lines = Array.from({ length: this.#folder.size(chunk) }, (_, line) => line);
    const there = await Promise.all(lines.map((line) => this.#folder.has(chunk, line)));
    return lines.filter((line) => !there[line]).map((line) => ({ job, chunk, line }));
  }
}

type Handle = Awaited<ReturnType<typeof open>>;

/** The two files of a job, under other names until they are whole. */
class Files {
  readonly #out: string;
  readonly #errors: string;
  /** The file of errors is there even where there are none. */
  readonly #always: boolean;
  #open: { out: Handle; errors: Handle } | null = null;

  constructor(out: string, errors?: string) {
    this.#out = out;
    this.#errors = errors ?? out.replace(/(\.jsonl)?$/, ".errors.jsonl");
    this.#always = errors !== undefined;
  }

  async open(): Promise<void> {
    const [out, errors] = await Promise.all([this.#make(this.#out), this.#make(this.#errors)]);
    this.#open = { out: out!, errors: errors! };
  }

  async write(answers: readonly Answered[]): Promise<void> {
    for (const failed of [false, true]) {
      const texts = answers.filter((one) => one.failed === failed).map(({ text }) => `${text}\n`);
      const file = failed ? "errors" : "out";
      if (texts.length === 0) continue;
      await this.#open![file].appendFile(texts.join("")).catch((cause) => {
        throw unwritable(failed ? this.#errors : this.#out, cause);
      });
    }
  }

  async finish(failed: boolean): Promise<void> {
    const named = this.#always || failed;
    await Promise.all([this.#open!.out.sync(), this.#open!.errors.sync()]);
    await this.close();
    if (named) await rename(part(this.#errors), this.#errors);
    else for (const file of [part(this.#errors), this.#errors]) await rm(file, { force: true });
    await rename(part(this.#out), this.#out);
    for (const folder of new Set([this.#errors, this.#out].map((file) => path.dirname(file)))) await syncFolder(folder);
  }

  async close(): Promise<void> {
    const files = this.#open;
    this.#open = null;
    await Promise.all([files?.out.close(), files?.errors.close()]);
  }

  #make(file: string): Promise<Handle> {
    return open(part(file), "w").catch((cause) => {
      throw unwritable(file, cause);
    });
  }
}

const part = (file: string) => `${file}.part`;
const unwritable = (file: string, cause: Error) =>
  new EngineError("Unwritable", `${file} cannot be written: ${cause.message}`, { file }, { cause });
