/** What operators do with jobs: look at them, end them, let them go on, and empty workers. */

import { unserved } from "./attached.ts";
import { depthOf } from "./metrics.ts";
import { withStore } from "./open_store.ts";
import { addChunks, type ChunkQueue, chunkId, openQueue } from "./queue.ts";
import { type Attached, type JobInfo, type JobState, type Place, stateOf } from "./store.ts";

/** Chunks that are taken out of a queue at once. */
const BULK = 500;

export interface JobStatus extends JobInfo {
  state: JobState;
  /** Chunks whose answers are in the folder. */
  done: number;
  /** Of the queue that the job is in, which is that of all jobs with this model and these options. */
  queue: { waiting: number; active: number; delayed: number; failed: number; paused: boolean };
  /** Workers that are attached to the queue. */
  workers: number;
  /** Why nobody works on it, and what differs in the workers that are near; null where somebody may, or it does not run. */
  unserved: string | null;
}

/** All jobs of the place, or one. */
export function status(place: Place, job?: string): Promise<JobStatus[]> {
  return withStore(place, async (store) => {
    const found: JobStatus[] = [];
    const jobs = job === undefined ? await store.all() : [await store.open(job)];
    const attached = await store.attached();
    for (const one of jobs) {
      const { identity } = one.info;
      const now = await stateOf(one);
      const workers = attached.filter((worker) => worker.identity === identity).length;
      const why = now.state === "running" ? unserved(one.info, attached) : null;
      found.push({ ...one.info, ...now, queue: await counts(place.queue, identity), workers, unserved: why });
    }
    return found;
  });
}

/** The workers that are attached to queues of the place, with what their answers depend on. */
export const attached = (place: Place): Promise<Attached[]> => withStore(place, (store) => store.attached());

const counts = (url: string, identity: string): Promise<JobStatus["queue"]> =>
  withQueue(url, identity, async (queue) => ({ ...(await depthOf(queue)), paused: await queue.isPaused() }));

/**
 * Ends a job: what is computed now ends, and no more of it begins. The answers that are there stay, and a job that has them all
 * stays `done`.
 */
export function cancel(place: Place, job: string): Promise<JobInfo & { state: JobState; done: number }> {
  return withStore(place, async (store) => {
    const one = await store.open(job);
    const before = await stateOf(one);
    if (before.state === "done") return { ...one.info, ...before };
    await one.cancel();
    await withQueue(place.queue, one.info.identity, async (queue) => {
      const { chunks } = one.info;
      for (let from = 0; from < chunks; from += BULK) {
        // Most of a long job is not in the queue, and workers pass over what is left.
        const { waiting, delayed } = await depthOf(queue);
        if (waiting + delayed === 0) return;
        const refs = await one.missing(from, Math.min(chunks, from + BULK));
        // All of them are on their way at once; one that a worker has now cannot be removed.
        await Promise.all(refs.map((ref) => queue.remove(chunkId({ job, ...ref })).catch(() => 0)));
      }
    });
    return { ...one.info, ...(await stateOf(one)) };
  });
}

/** Lets a job go on: one that was cancelled, and lines that ended too many workers. @returns the chunks that were added */
export function retry(place: Place, job: string): Promise<number> {
  return withStore(place, async (store) => {
    const one = await store.open(job);
    await one.resume();
    return withQueue(place.queue, one.info.identity, async (queue) => {
      let added = 0;
      for (let chunk = 0; chunk < one.info.chunks; chunk++) {
        const answers = await one.answers(chunk);
        if (answers && !answers.some(isLost)) continue;
        if (answers) await one.forget(chunk);
        // An entry that failed for good would stand in the way.
        await queue.remove(chunkId({ job, chunk })).catch(() => 0);
        await addChunks(queue, [{ job, chunk }], one.info.priority);
        added++;
      }
      return added;
    });
  });
}

const isLost = ({ failed, text }: { failed: boolean; text: string }) =>
  failed && JSON.parse(text).error?.code === "worker_lost";

/** Lets all workers of the place's jobs finish what they have and take no more, or take more again. @returns the queues */
export function drain(place: Place, { off = false } = {}): Promise<number> {
  return withStore(place, async (store) => {
    const identities = new Set((await store.all()).map(({ info }) => info.identity));
    for (const identity of identities) {
      await withQueue(place.queue, identity, (queue) => (off ? queue.resume() : queue.pause()));
    }
    return identities.size;
  });
}

async function withQueue<T>(url: string, identity: string, use: (queue: ChunkQueue) => Promise<T>): Promise<T> {
  const queue = await openQueue(url, identity);
  try {
    return await use(queue);
  } finally {
    await queue.close();
  }
}
