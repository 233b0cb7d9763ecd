/** What keeps files and batches for the server, and what the server lends it. Where they lie is not the server's business. */

import type { Batch, BatchAsk, FileObject } from "../openai/batches.ts";
import type { Model } from "../types/index.ts";

export type { Batch, BatchAsk, FileObject };

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
