/** What a worker does, and has done since it began. */

/** What became of a chunk. */
export interface WorkEvent {
  job: string;
  chunk: number;
  line?: number;
  /** `known` was done before, `cancelled` is not wanted any more, `split` goes on line by line, `lost` ended too many workers. */
  what: "answered" | "known" | "cancelled" | "split" | "lost";
  lines: number;
  /** Lines without an answer, of those that were answered. */
  failed: number;
  /** Times that it was begun before, by any worker. */
  retries: number;
  ms: number;
}

export interface WorkCounts {
  /** Chunks, and lines alone, by what became of them. */
  chunks: Record<WorkEvent["what"], number>;
  /** Lines that were answered, and those among them without an answer. */
  lines: number;
  failed: number;
  /** Chunks that a worker had begun before. */
  retries: number;
  /** What went wrong and is tried again. */
  errors: number;
  seconds: number;
}

export const noCounts = (): WorkCounts => ({
  chunks: { answered: 0, known: 0, cancelled: 0, split: 0, lost: 0 },
  ...{ lines: 0, failed: 0, retries: 0, errors: 0, seconds: 0 },
});

export function count(counts: WorkCounts, { what, lines, failed, retries, ms }: WorkEvent): void {
  counts.chunks[what]++;
  if (what === "answered" || what === "lost") counts.lines += lines;
  counts.failed += failed;
  if (retries > 0) counts.retries++;
  counts.seconds += ms / 1000;
}
