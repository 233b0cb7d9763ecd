/** Puts the lines of a job where workers find them. The same lines, model and options are the same job. */

import { EngineError, type Line } from "ternlight/batch";
import { checkThere } from "./files.ts";
import { withStore } from "./open_store.ts";
import { Chunks, type JobInfo, type JobSettings, type Place } from "./store.ts";

export interface SubmitOptions extends Place, JobSettings {
  /** Blocks of lines, in order. */
  rows: AsyncIterable<readonly Line[]>;
  /** The file into which it is going to be collected. Where `collect` would refuse it, for what is there, the job is not submitted. */
  out?: string | null;
  /** As `collect` takes them. */
  errors?: string;
  force?: boolean;
}

export function submit({ rows, out = null, errors, force, ...options }: SubmitOptions): Promise<JobInfo> {
  return withStore(options, (store) => {
    const whole = async (id: string) => {
      const job = await store.open(id).catch(noneYet);
      return job !== null && (await job.done()) === job.info.chunks;
    };
    const admit = out === null ? undefined : ({ id }: JobInfo) => checkThere(out, { errors, force }, () => whole(id));
    return store.submit(new Chunks(rows, options.chunk), options, admit);
  });
}

function noneYet(error: unknown): null {
  if (error instanceof EngineError && error.code === "NotFound") return null;
  throw error;
}
