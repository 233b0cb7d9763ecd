/** What keeps files and batches for the server, and what the server lends it. Where they lie is not the server's business. */

import type { Family, Labels } from "../metrics/text.ts";
import type { Batch, BatchAsk, FileObject } from "../openai/batches.ts";
import type { Model } from "../types/index.ts";

export type { Batch, BatchAsk, FileObject };

const WORKED_ON: ReadonlySet<Batch["status"]> = new Set(["in_progress", "finalizing", "cancelling"]);

/** A place for files and batches, and what works on these. */
export interface Batches {
  /** Begins to work. Nothing else is called before. */
  start(server: LineServer): void;
  /** Leaves what is not done to the next start. */
  stop(): Promise<void>;
  /** Takes the file of a multipart form. */
  upload(request: Request): Promise<FileObject>;
  /** From the oldest on, as are the batches. */
  files(): readonly FileObject[];
  content(id: string): Promise<{ bytes: number; body: ReadableStream<Uint8Array> }>;
  remove(id: string): Promise<void>;
  create(ask: BatchAsk): Promise<Batch>;
  batches(): readonly Batch[];
  cancel(id: string): Promise<Batch>;
}

/** The server as those see it who answer lines of batches. */
export interface LineServer {
  /** Answers the request of a line, which needs no key and no place among those of clients. */
  fetch(request: Request): Promise<Response>;
  /** Resolves when no client's request runs, waits or is being read. */
  quiet(signal: AbortSignal): Promise<void>;
  knows(model: string): boolean;
  /** Works with a model once it is there. */
  use<T>(model: string, work: (model: Model) => Promise<T>): Promise<T>;
  defaultMaxTokens: number;
  version: string;
}

/** What there is of batches and files now. Counters would forget what ended with the server before this one. */
export function batchFamilies(batches: Batches): Family[] {
  const [all, files] = [batches.batches(), batches.files()];
  const states = new Map<string, number>();
  for (const { status } of all) states.set(status, (states.get(status) ?? 0) + 1);
  const lines = { left: 0, completed: 0, failed: 0 };
  for (const { status, request_counts: of } of all) {
    if (!WORKED_ON.has(status)) continue;
    lines.left += of.total - of.completed - of.failed;
    lines.completed += of.completed;
    lines.failed += of.failed;
  }
  const gauge = (name: string, help: string, samples: readonly (readonly [Labels, number])[]): Family => ({
    type: "gauge",
    name: `ternlight_server_${name}`,
    help,
    samples,
  });
  return [
    gauge(
      "batches",
      "Batches that are kept, by status.",
      [...states].map(([status, count]) => [{ status }, count]),
    ),
    gauge(
      "batch_lines",
      "Lines of the batches that are worked on.",
      Object.entries(lines).map(([state, count]) => [{ state }, count]),
    ),
    gauge("files", "Files that are kept.", [[{}, files.length]]),
    gauge("file_bytes", "Bytes of the files that are kept.", [[{}, files.reduce((sum, { bytes }) => sum + bytes, 0)]]),
  ];
}
