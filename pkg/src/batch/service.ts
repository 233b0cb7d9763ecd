/** Files and batches of `ternlight serve`, in a folder. What is on the disk is all that counts: any start goes on from it. */

import { rm } from "node:fs/promises";
import { type Batch, type BatchAsk, type FileObject, missing } from "../openai/batches.ts";
import { ApiError, invalid, retryHeaders } from "../openai/errors.ts";
import type { Batches, LineServer } from "../server/serving.ts";
import { Folder, newId, now } from "./folder.ts";
import { Job } from "./job.ts";
import { notStored, receive } from "./upload.ts";

/** Uploads at once: each has a piece of its file in memory. */
const MAX_UPLOADS = 8;
const MAX_FILES = 10_000;
/** Batches that have not ended. */
const MAX_OPEN = 1000;
/** Batches that are told of; the oldest ones that have ended are forgotten. */
const MAX_KEPT = 10_000;
/** Milliseconds before a batch goes on whose model or disk failed. */
const RETRY_MS = 5000;

export interface FolderSettings {
  /** Bytes of an uploaded file at most. */
  maxUpload: number;
  /** Hears of what goes wrong outside of requests. */
  onProblem?(message: string): void;
}

/** Opens a folder, which belongs to this process until `stop`. */
export async function openBatchFolder(path: string, settings: FolderSettings): Promise<Batches> {
  const { folder, batches } = await Folder.open(path);
  return new FolderBatches(
    folder,
    batches.map((record) => new Job(record, folder)),
    settings,
  );
}

class FolderBatches implements Batches {
  readonly #folder: Folder;
  readonly #settings: FolderSettings;
  /** In the order in which they came. */
  readonly #jobs: Map<string, Job>;
  readonly #closing = new AbortController();
  readonly #closed = aborted(this.#closing.signal);
  readonly #running = new Set<Promise<void>>();
  #server: LineServer | null = null;
  /** Settles when no batch works that came before. */
  #turn: Promise<unknown> = Promise.resolve();
  #uploads = 0;
  /** Of the last batch: seconds do not tell which of two came first. */
  #number: number;
  #stopped: Promise<void> | null = null;

  constructor(folder: Folder, jobs: readonly Job[], settings: FolderSettings) {
    this.#folder = folder;
    this.#jobs = new Map(jobs.map((job) => [job.record.batch.id, job]));
    this.#settings = settings;
    this.#number = jobs.at(-1)?.record.number ?? 0;
  }

  start(server: LineServer): void {
    this.#server = server;
    for (const job of this.#jobs.values()) if (!job.ended) this.#begin(job);
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async upload(request: Request): Promise<FileObject> {
    if (this.#uploads >= MAX_UPLOADS) {
      const message = "there is no place for another upload: try again later";
      throw new ApiError(429, message, { code: "queue_full", headers: retryHeaders(1000) });
    }
    if (this.#folder.files.size >= MAX_FILES) {
      throw invalid("file", `the server keeps ${MAX_FILES} files: delete some`, "too_many_files");
    }
    this.#uploads++;
    const id = newId("file-");
    const part = `${this.#folder.dataOf(id)}.new`;
    try {
      const { bytes, filename } = await receive(request, part, this.#settings.maxUpload);
      const more = { purpose: "batch", status: "processed" } as const;
      const file: FileObject = { id, object: "file", bytes, created_at: now(), filename, ...more };
      await this.#folder.addNew(file, part).catch((error) => {
        throw notStored("file", error);
      });
      return file;
    } finally {
      await rm(part, { force: true });
      this.#uploads--;
    }
  }

  files(): readonly FileObject[] {
    return [...this.#folder.files.values()];
  }

  async content(id: string): Promise<{ bytes: number; body: ReadableStream<Uint8Array> }> {
    const file = this.#folder.files.get(id);
    if (!file || !(await this.#folder.has(id))) throw missing("file", id);
    return { bytes: file.bytes, body: this.#folder.read(id) };
  }

  async remove(id: string): Promise<void> {
    const user = this.#open().find(({ record }) =>
      [record.batch.input_file_id, record.output, record.errors].includes(id),
    );
    if (user) {
      const message = `the file belongs to ${user.record.batch.id}, which has not ended`;
      throw new ApiError(409, message, { param: "id", code: "file_in_use" });
    }
    await this.#folder.remove(id);
  }

  async create({ file, endpoint, window, metadata }: BatchAsk): Promise<Batch> {
    const input = this.#folder.files.get(file);
    if (!input) throw invalid("input_file_id", "input_file_id must be the id of an uploaded file", "file_not_found");
    if (input.purpose !== "batch") throw invalid("input_file_id", "the purpose of the file must be batch");
    if (this.#open().length >= MAX_OPEN) {
      const message = `${MAX_OPEN} batches wait: try again later`;
      throw new ApiError(429, message, { code: "queue_full", headers: retryHeaders(60_000) });
    }
    const created = now();
    const batch: Batch = {
      id: newId("batch_"),
      object: "batch",
      endpoint,
      model: null,
      errors: null,
      input_file_id: file,
      completion_window: window.text,
      status: "validating",
      output_file_id: null,
      error_file_id: null,
      created_at: created,
      in_progress_at: null,
      expires_at: created + window.seconds,
      finalizing_at: null,
      completed_at: null,
      failed_at: null,
      expired_at: null,
      cancelling_at: null,
      cancelled_at: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
      metadata,
    };
    const number = ++this.#number;
    const job = new Job({ batch, output: newId("file-"), errors: newId("file-"), number }, this.#folder);
    // From here on its input stays.
    this.#jobs.set(batch.id, job);
    try {
      await job.keep();
    } catch (error) {
      this.#jobs.delete(batch.id);
      throw notStored("batch", error);
    }
    await this.#forget();
    const answer = { ...batch };
    this.#begin(job);
    return answer;
  }

  batches(): readonly Batch[] {
    return [...this.#jobs.values()].map(({ batch }) => batch);
  }

  async cancel(id: string): Promise<Batch> {
    const job = this.#jobs.get(id);
    if (!job) throw missing("batch", id);
    const { status } = job.batch;
    if (status === "cancelling" || status === "cancelled") return job.batch;
    if (job.ended || status === "finalizing") {
      throw new ApiError(409, `the batch is ${status}`, { param: "id", code: "batch_not_cancellable" });
    }
    await job.cancel().catch((error) => {
      throw notStored("batch", error);
    });
    return job.batch;
  }

  #open(): Job[] {
    return [...this.#jobs.values()].filter(({ ended }) => !ended);
  }

  /** One batch works at a time, in turn; one that was stopped ends at once, as it works no more. */
  #begin(job: Job): void {
    if (this.#closing.signal.aborted) return;
    job.watch();
    const before = this.#turn;
    const own = (async () => {
      await Promise.race([before, aborted(job.stopped), this.#closed]);
      await this.#drive(job);
    })();
    this.#turn = Promise.all([before, own]);
    this.#running.add(own);
    void own.then(() => this.#running.delete(own));
  }

  async #drive(job: Job): Promise<void> {
    const { signal } = this.#closing;
    let told = "";
    while (!signal.aborted && !job.ended) {
      try {
        await job.run(this.#server!, signal);
      } catch (error) {
        if (signal.aborted) return;
        const { message } = error as Error;
        if (message !== told) this.#settings.onProblem?.(`${job.record.batch.id} goes on later: ${message}`);
        told = message;
        await Promise.race([later(RETRY_MS), this.#closed]);
      }
    }
  }

  async #forget(): Promise<void> {
    for (const [id, job] of this.#jobs) {
      if (this.#jobs.size <= MAX_KEPT) return;
      if (!job.ended) continue;
      this.#jobs.delete(id);
      await this.#folder.forget(id);
    }
  }

  async #end(): Promise<void> {
    this.#closing.abort(new Error("the server is being stopped"));
    for (const job of this.#jobs.values()) job.unwatch();
    await Promise.all(this.#running);
    this.#folder.close();
  }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms).unref());
