/** What dashboards, alarms and autoscalers need of queues: the queues and jobs of a place, and what workers have done. */

import { type MetricFamily, metricsText } from "ternlight/batch";
import type { WorkCounts } from "./counts.ts";
import { Look } from "./look.ts";
import { openStore } from "./open_store.ts";
import { type ChunkQueue, openQueue } from "./queue.ts";
import { type Job, type Place, stateOf } from "./store.ts";

export interface Metrics {
  /** Prometheus' text format. @param works what workers of this process have done */
  text(works?: readonly Counted[]): Promise<string>;
  close(): Promise<void>;
}

export interface Counted {
  /** The model's name. */
  name: string;
  counts: WorkCounts;
}

/** Milliseconds in which broker and store have to answer. */
const PATIENCE_MS = 5000;
/** Chunks of each kind among which the oldest is looked for. */
const OLDEST_OF = 100;
const WAITING = ["waiting", "prioritized", "paused"];

type Family = MetricFamily;
type Sample = readonly [labels: Record<string, string>, value: number];

const family = (type: "counter" | "gauge", name: string, help: string, samples: readonly Sample[]): Family => ({
  type,
  name: `ternlight_batch_${name}`,
  help,
  samples,
});

/**
 * @param identities only the queues of these, and no jobs, which takes the broker alone
 * @param patience milliseconds in which broker and store have to answer
 */
export async function openMetrics(
  place: Place,
  identities?: readonly string[],
  patience: number = PATIENCE_MS,
): Promise<Metrics> {
  const store = identities ? null : await openStore(place);
  const queues = new Queues(place.queue);
  const jobs = new Look(async () => (await store?.all()) ?? []);
  const answers = new Look(async () => jobFamilies(await jobs.done()));
  const broker = new Look(async () => {
    // A store that is slow, or away, hides no queue that was known.
    if (!identities) await jobs.within(patience / 2).catch(() => {});
    return queueFamilies(identities ?? new Set(jobs.last?.map(({ info }) => info.identity)), queues);
  });
  return {
    async text(works = []) {
      const looks = [jobs.within(patience), answers.within(patience), broker.within(patience)] as const;
      const [listed, ofJobs, ofQueues] = await Promise.allSettled(looks);
      const answered = [listed, ofQueues].every((one) => one.status === "fulfilled" && one.value !== null);
      const up = answered && ofJobs.status === "fulfilled" ? 1 : 0;
      return metricsText([
        family("gauge", "queue_up", "Whether broker and store answer.", [[{}, up]]),
        // Counting the answers of large jobs may take longer than a scrape: then those of the last time are told.
        ...(ofJobs.status === "fulfilled" ? (ofJobs.value ?? answers.last ?? []) : []),
        ...(ofQueues.status === "fulfilled" ? (ofQueues.value ?? []) : []),
        ...workFamilies(works),
      ]);
    },
    async close() {
      await queues.close();
      await store?.close();
    },
  };
}

/** Queues stay open from one look to the next. */
class Queues {
  readonly #url: string;
  readonly #open = new Map<string, Promise<ChunkQueue>>();

  constructor(url: string) {
    this.#url = url;
  }

  get(identity: string): Promise<ChunkQueue> {
    const found = this.#open.get(identity) ?? openQueue(this.#url, identity);
    this.#open.set(identity, found);
    found.catch(() => this.#open.delete(identity));
    return found;
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#open.values()].map(async (queue) => (await queue).close()));
  }
}

async function jobFamilies(jobs: readonly Job[]): Promise<Family[]> {
  const states = { running: 0, cancelled: 0, done: 0 };
  const chunks: Sample[] = [];
  for (const job of jobs) {
    const { id, model, chunks: total, identity: queue } = job.info;
    const { state, done } = await stateOf(job);
    states[state]++;
    // A job that has ended leaves the series.
    if (state !== "running") continue;
    // A scrape has a label `job` of its own.
    const labels = { batch_job: id, model, queue };
    chunks.push([{ ...labels, state: "done" }, done], [{ ...labels, state: "left" }, total - done]);
  }
  const counts = Object.entries(states).map(([state, count]): Sample => [{ state }, count]);
  return [
    family("gauge", "jobs", "Jobs of the store.", jobs.length > 0 ? counts : []),
    family("gauge", "job_chunks", "Chunks of a running job that have all answers, and that have not.", chunks),
  ];
}

async function queueFamilies(identities: Iterable<string>, queues: Queues): Promise<Family[]> {
  const [depth, oldest, drained]: [Sample[], Sample[], Sample[]] = [[], [], []];
  for (const identity of identities) {
    const queue = await queues.get(identity);
    for (const [state, count] of Object.entries(await depthOf(queue))) depth.push([{ queue: identity, state }, count]);
    oldest.push([{ queue: identity }, await oldestOf(queue)]);
    drained.push([{ queue: identity }, (await queue.isPaused()) ? 1 : 0]);
  }
  return [
    family("gauge", "queue_chunks", "Chunks in a queue; those that failed are tried no more.", depth),
    family("gauge", "oldest_seconds", "Age of the oldest chunk that waits in a queue.", oldest),
    family("gauge", "drained", "Whether workers take no chunks of a queue.", drained),
  ];
}

/** What a queue holds. What waits in one that is paused is of one state with Redis, and of another with PostgreSQL. */
export async function depthOf(queue: ChunkQueue) {
  const counts = await queue.getJobCounts(...WAITING, "active", "delayed", "failed");
  const { active = 0, delayed = 0, failed = 0 } = counts;
  const waiting = WAITING.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  return { waiting, active, delayed, failed };
}

async function oldestOf(queue: ChunkQueue): Promise<number> {
  const jobs = await queue.getJobs(WAITING, 0, OLDEST_OF - 1, true);
  const begun = Math.min(...jobs.map((job) => job?.timestamp ?? Number.POSITIVE_INFINITY));
  return Number.isFinite(begun) ? Math.max(0, (Date.now() - begun) / 1000) : 0;
}

function workFamilies(works: readonly Counted[]): Family[] {
  const each = (value: (counts: WorkCounts) => number): Sample[] =>
    works.map(({ name: model, counts }) => [{ model }, value(counts)]);
  const chunks = works.flatMap(({ name: model, counts }) =>
    Object.entries(counts.chunks).map(([what, count]) => [{ model, what }, count] as const),
  );
  return [
    family(
      "counter",
      "lines_total",
      "Lines that this worker has answered.",
      each(({ lines }) => lines),
    ),
    family(
      "counter",
      "failed_lines_total",
      "Lines among them without an answer.",
      each(({ failed }) => failed),
    ),
    family("counter", "chunks_total", "Chunks and lone lines that this worker took, by what became of them.", chunks),
    family(
      "counter",
      "retries_total",
      "Chunks among them that a worker had begun before.",
      each(({ retries }) => retries),
    ),
    family(
      "counter",
      "errors_total",
      "What went wrong and is tried again.",
      each(({ errors }) => errors),
    ),
    family(
      "counter",
      "busy_seconds_total",
      "Time in chunks, which overlap.",
      each(({ seconds }) => seconds),
    ),
  ];
}
