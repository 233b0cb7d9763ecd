/** A batch of the server's on its way: its input is checked, its lines are answered while no client asks, its results become files. */

import { createReadStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { type Batch, BatchCheck, ENDED } from "../openai/batches.ts";
import { type Line, LineAnswers, type LineServer } from "../server/serving.ts";
import { exists } from "./disk.ts";
import { type BatchRecord, type Folder, now } from "./folder.ts";
import { identityOf, tokensOf } from "./identity.ts";
import { journalOf, leftBy, nameParts, Output, type Places } from "./output.ts";
import { readRows } from "./rows.ts";
import { runBatch, type Worker } from "./run.ts";

/** Lines at once of a batch that was stopped: none of them is worked on. */
const AFTER_STOP = 64;
const LF = 0x0a;
/** Milliseconds after which the clock is looked at again: it may have been set. Timers take no more than 24 days. */
const LOOK_MS = 3_600_000;

/** Why lines are not begun any more. */
interface Stop {
  code: "batch_cancelled" | "batch_expired";
  message: string;
}
const CANCELLED: Stop = { code: "batch_cancelled", message: "the batch was cancelled before this request was done" };
const EXPIRED: Stop = { code: "batch_expired", message: "the completion window was over before this request was done" };

export class Job {
  readonly record: BatchRecord;
  readonly #folder: Folder;
  readonly #stop = new AbortController();
  #output: Output | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #saving: Promise<void> = Promise.resolve();

  constructor(record: BatchRecord, folder: Folder) {
    this.record = record;
    this.#folder = folder;
    if (record.batch.cancelling_at !== null) this.#stop.abort(CANCELLED);
  }

  /** Aborted when no further line is begun: the batch was cancelled, or its time is over. */
  get stopped(): AbortSignal {
    return this.#stop.signal;
  }

  get ended(): boolean {
    return ENDED.includes(this.record.batch.status);
  }

  /** The batch as it is now. */
  get batch(): Batch {
    const { batch } = this.record;
    const output = this.#output;
    if (!output) return batch;
    const { failed } = output;
    const completed = output.done - failed;
    return { ...batch, request_counts: { ...batch.request_counts, completed, failed } };
  }

  /** Begins to watch the time. */
  watch(): void {
    const ms = 1000 * this.record.batch.expires_at - Date.now();
    const look = () => (ms > LOOK_MS ? this.watch() : this.#stop.abort(EXPIRED));
    this.#timer = setTimeout(look, Math.min(Math.max(0, ms), LOOK_MS));
    // The timer alone keeps no process alive.
    this.#timer.unref();
  }

  unwatch(): void {
    clearTimeout(this.#timer);
  }

  async cancel(): Promise<void> {
    const saved = this.#update({ status: "cancelling", cancelling_at: now() });
    this.#stop.abort(CANCELLED);
    await saved;
  }

  /** Brings the batch to its end, from wherever it is. @param closing ends the work, and keeps what is done */
  async run(server: LineServer, closing: AbortSignal): Promise<void> {
    const { batch } = this.record;
    if (batch.in_progress_at === null && !(await this.#begin(server, closing))) return this.unwatch();
    await this.#answer(server, closing);
    await this.#publish();
    this.unwatch();
  }

  async keep(): Promise<void> {
    await this.#update({});
  }

  /** @returns whether the input is right */
  async #begin(server: LineServer, closing: AbortSignal): Promise<boolean> {
    const { batch } = this.record;
    const check = new BatchCheck(batch.endpoint);
    if (await this.#folder.has(batch.input_file_id)) {
      await this.#check(check, closing);
      check.end((model) => server.knows(model));
    } else {
      const message = "the input file is not there any more";
      check.faults.push({ code: "file_not_found", message, param: "input_file_id", line: null });
    }
    const { faults, total, model } = check;
    if (faults.length > 0) {
      await this.#update({ status: "failed", failed_at: now(), model, errors: { object: "list", data: faults } });
      return false;
    }
    const status = batch.cancelling_at === null ? "in_progress" : "cancelling";
    const request_counts = { total, completed: 0, failed: 0 };
    await this.#update({ status, in_progress_at: now(), model, request_counts });
    return true;
  }

  async #check(check: BatchCheck, closing: AbortSignal): Promise<void> {
    for await (const lines of this.#lines()) {
      for (const { text, fault } of lines) if (!check.add(text, fault)) return;
      closing.throwIfAborted();
    }
  }

  /** The input is JSON Lines, and is not unpacked: its size is that of the upload. */
  #lines(): AsyncGenerator<Line[], undefined> {
    const name = this.#folder.dataOf(this.record.batch.input_file_id);
    return readRows({ name, bytes: createReadStream(name), size: null, read: 0 }, null);
  }

  async #answer(server: LineServer, closing: AbortSignal): Promise<void> {
    const places = this.#places();
    let kept = await leftBy(places);
    if (kept?.whole) return nameParts(places, kept.mark);
    // Its results had their names when the process ended.
    if (!kept && (await exists(places.out))) return;
    const { identity, chunk } = this.#stop.signal.aborted
      ? { identity: kept?.of ?? this.record.batch.id, chunk: AFTER_STOP }
      : await this.#prepare(server);
    if (kept && kept.of !== identity) {
      // Another model answers now: no batch has answers of two.
      await rm(journalOf(places));
      kept = null;
    }
    const output = await Output.open(places, identity, kept);
    this.#output = output;
    try {
      const workers = [this.#worker(server, identity, closing)];
      await runBatch({ rows: this.#lines(), workers, chunk, output, signal: closing });
      await output.finish();
    } catch (error) {
      await output.stop();
      throw error;
    } finally {
      this.record.batch.request_counts = this.batch.request_counts;
      this.#output = null;
    }
  }

  /** Of the engine's places, one is left to clients. */
  #prepare(server: LineServer): Promise<{ identity: string; chunk: number }> {
    const name = this.record.batch.model!;
    const { defaultMaxTokens, version } = server;
    return server.use(name, async (model) => ({
      identity: await identityOf(model, { name, defaultMaxTokens, version }),
      chunk: Math.max(1, model.info.maxSequences - 1),
    }));
  }

  #worker(server: LineServer, identity: string, closing: AbortSignal): Worker {
    const lines = new LineAnswers({
      fetch: server.fetch,
      model: null,
      tokenOf: tokensOf(identity),
      rest: (signal) => server.quiet(signal),
    });
    const stop = this.#stop.signal;
    const ends = AbortSignal.any([closing, stop]);
    return {
      answer: async (line) => {
        try {
          ends.throwIfAborted();
          await server.quiet(ends);
          return await lines.answer(line, ends);
        } catch (error) {
          closing.throwIfAborted();
          if (!stop.aborted) throw error;
          const { code, message } = stop.reason as Stop;
          return lines.lost(line, message, code);
        }
      },
    };
  }

  /** Makes files of the results, and ends the batch. What was done of it before is done again. */
  async #publish(): Promise<void> {
    const { batch, output, errors } = this.record;
    const stop = this.#stop.signal.aborted ? (this.#stop.signal.reason as Stop) : null;
    if (stop?.code !== "batch_cancelled") await this.#update({ status: "finalizing", finalizing_at: now() });
    const completed = await this.#toFile(output, "output");
    const failed = await this.#toFile(errors, "errors");
    const end = now();
    await this.#update({
      ...(stop === null
        ? { status: "completed", completed_at: end }
        : stop.code === "batch_expired"
          ? { status: "expired", expired_at: end }
          : { status: "cancelled", cancelled_at: end }),
      output_file_id: completed > 0 ? output : null,
      error_file_id: failed > 0 ? errors : null,
      request_counts: { total: batch.request_counts.total, completed, failed },
    });
    // Until here an empty file says that every line was answered.
    if (completed === 0) await rm(this.#folder.dataOf(output), { force: true });
  }

  /** @returns how many lines it has; of none no file is made */
  async #toFile(id: string, what: string): Promise<number> {
    const data = this.#folder.dataOf(id);
    const found = await stat(data).catch(() => null);
    if (!found || found.size === 0) return 0;
    const filename = `${this.record.batch.id}_${what}.jsonl`;
    const { size: bytes } = found;
    const more = { object: "file", purpose: "batch_output", status: "processed" } as const;
    await this.#folder.add({ id, bytes, created_at: now(), filename, ...more });
    let lines = 0;
    for await (const chunk of createReadStream(data)) {
      for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, at + 1)) lines++;
    }
    return lines;
  }

  #places(): Places {
    const { output, errors } = this.record;
    return { out: this.#folder.dataOf(output), errors: this.#folder.dataOf(errors), always: false };
  }

  /** Changes the batch here and on the disk; the last change is the last on the disk, too. */
  #update(fields: Partial<Batch>): Promise<void> {
    Object.assign(this.record.batch, fields);
    this.#saving = this.#saving.catch(() => {}).then(() => this.#folder.keep(this.record));
    return this.#saving;
  }
}
