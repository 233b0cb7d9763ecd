/** Puts the lines of a job where workers find them. The same lines, model and options are the same job. */

import type { Line } from "ternlight/batch";
import { withStore } from "./open_store.ts";
import { Chunks, type JobInfo, type JobSettings, type Place } from "./store.ts";

export interface SubmitOptions extends Place, JobSettings {
  /** Blocks of lines, in order. */
  rows: AsyncIterable<readonly Line[]>;
}

export function submit({ rows, ...options }: SubmitOptions): Promise<JobInfo> {
  return withStore(options, (store) => store.submit(new Chunks(rows, options.chunk), options));
}
