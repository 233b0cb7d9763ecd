/** What operators do with jobs: look at them, end them, let them go on, and empty workers. */

import { JobFolder, type JobInfo } from "./folder.ts";
import { addChunks, type ChunkQueue, chunkId, openQueue } from "./queue.ts";

export interface Place {
  queue: string;
  folder: string;
}

export interface JobStatus extends JobInfo {
  state: "running" | "cancelled" | "done";
  /** Chunks whose answers are in the folder. */
  done: number;
  /** Of the queue that the job is in, which is that of all jobs with this model and these options. */
  queue: { waiting: number; active: number; delayed: number; failed: number; paused: boolean };
}

/** All jobs of the folder, or one. */
export async function status({ queue: url, folder }: Place, job?: string): Promise<JobStatus[]> {
  const folders = job === undefined ? await JobFolder.all(folder) : [await JobFolder.open(folder, job)];
  const found: JobStatus[] = [];
  for (const one of folders) {
    const { info } = one;
    const done = await one.done();
    const whole = done === info.chunks;
    const state = whole ? "done" : (await one.cancelled()) ? "cancelled" : "running";
    found.push({ ...info, state, done, queue: await counts(url, info.identity) });
  }
  return found;
}

async function counts(url: string, identity: string): Promise<JobStatus["queue"]> {
  return withQueue(url, identity, async (queue) => {
    const found = await queue.getJobCounts("waiting", "paused", "prioritized", "active", "delayed", "failed");
    const { waiting = 0, paused = 0, prioritized = 0, active = 0, delayed = 0, failed = 0 } = found;
    // What waits in a queue that is paused is of one state with Redis, and of another with PostgreSQL.
    return { waiting: waiting + paused + prioritized, active, delayed, failed, paused: await queue.isPaused() };
  });
}

/** Ends a job: what is computed now ends, and no more of it begins. The answers that are there stay. */
export async function cancel({ queue: url, folder }: Place, job: string): Promise<JobInfo> {
  const one = await JobFolder.open(folder, job);
  await one.cancel();
  await withQueue(url, one.info.identity, async (queue) => {
    // Workers pass over what is left; a job that one of them has now cannot be removed.
    for (let chunk = 0; chunk < one.info.chunks; chunk++) await queue.remove(chunkId({ job, chunk })).catch(() => 0);
  });
  return one.info;
}

/** Lets a job go on: one that was cancelled, and lines that ended too many workers. @returns the chunks that were added */
export async function retry({ queue: url, folder }: Place, job: string): Promise<number> {
  const one = await JobFolder.open(folder, job);
  await one.resume();
  return withQueue(url, one.info.identity, async (queue) => {
    let added = 0;
    for (let chunk = 0; chunk < one.info.chunks; chunk++) {
      const answers = await one.answers(chunk);
      if (answers && !answers.some(isLost)) continue;
      if (answers) await one.forget(chunk);
      await addChunks(queue, [{ job, chunk }], one.info.priority);
      added++;
    }
    return added;
  });
}

const isLost = ({ failed, text }: { failed: boolean; text: string }) =>
  failed && JSON.parse(text).error?.code === "worker_lost";

/** Lets all workers of the folder's jobs finish what they have and take no more, or take more again. @returns the queues */
export async function drain({ queue: url, folder }: Place, { off = false } = {}): Promise<number> {
  const identities = new Set((await JobFolder.all(folder)).map(({ info }) => info.identity));
  for (const identity of identities) {
    await withQueue(url, identity, (queue) => (off ? queue.resume() : queue.pause()));
  }
  return identities.size;
}

async function withQueue<T>(url: string, identity: string, use: (queue: ChunkQueue) => Promise<T>): Promise<T> {
  const queue = await openQueue(url, identity);
  try {
    return await use(queue);
  } finally {
    await queue.close();
  }
}
