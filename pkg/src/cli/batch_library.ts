/** The package @ternlight/batch, which is installed beside. */

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import type { Answerer } from "../batch/answerer.ts";
import type { Line } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";

export interface Place {
  queue: string;
  folder?: string;
}

interface Job {
  id: string;
  model: string;
  lines: number;
  chunks: number;
  priority?: number;
}

export interface JobStatus extends Job {
  state: string;
  done: number;
  queue: { waiting: number; active: number; paused: boolean };
  workers: number;
  unserved: string | null;
}

/** A worker that is attached to a queue: its model's name, and what its answers depend on. */
export interface Attached {
  identity: string;
  model: string;
  facts: Answerer["facts"];
}

export interface Collected {
  lines: number;
  failed: number;
  total: number;
}

export interface Work {
  counts: object;
  close(): Promise<void>;
}

export interface Metrics {
  text(works?: readonly { name: string; counts: object }[]): Promise<string>;
  close(): Promise<void>;
}

/** As much of @ternlight/batch as is used. */
export interface Library {
  check(options: Place & { out: string | null; errors?: string }): Promise<void>;
  submit(
    options: Place & {
      rows: AsyncIterable<readonly Line[]>;
      identity: string;
      model: string;
      chunk: number;
      priority?: number;
      facts: Answerer["facts"];
      out: string | null;
      errors?: string;
      force?: boolean;
    },
  ): Promise<Job>;
  collect(
    options: Place & {
      job: string;
      out: string | null;
      errors?: string;
      force?: boolean;
      signal: AbortSignal;
      onProgress(progress: Collected): void;
      onError(error: Error): void;
      onUnserved(message: string): void;
    },
  ): Promise<Collected>;
  work(
    options: Place & {
      model: Answerer;
      chunks?: number;
      lease?: number;
      onEvent(event: { job: string; chunk: number; line?: number; what: string; lines: number; ms: number }): void;
      onError(error: Error): void;
    },
  ): Promise<Work>;
  openMetrics(place: Place, identities?: readonly string[]): Promise<Metrics>;
  attached(place: Place): Promise<Attached[]>;
  status(place: Place, job?: string): Promise<JobStatus[]>;
  cancel(place: Place, job: string): Promise<Job & { state: string }>;
  retry(place: Place, job: string): Promise<number>;
  drain(place: Place, options: { off: boolean }): Promise<number>;
}

const PACKAGE = "@ternlight/batch";

/** The package beside this one, or in the folder where the command runs. */
export async function library(): Promise<Library> {
  const own = () => import(PACKAGE);
  const here = () =>
    import(pathToFileURL(createRequire(path.join(process.cwd(), "package.json")).resolve(PACKAGE)).href);
  try {
    return await own().catch(here);
  } catch (cause) {
    const message = `--queue needs the package ${PACKAGE}: npm install ${PACKAGE}`;
    throw new EngineError("UnsupportedOption", message, { option: "--queue" }, { cause });
  }
}
