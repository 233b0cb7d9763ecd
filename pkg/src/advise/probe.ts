/** Measures: a machine by itself, and how long steps with a model take on it. */

import { type Outside, UnstableEngine } from "../api/unstable.ts";
import type { Description, Model } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";
import type { Steps } from "./simulate.ts";
import type { DeviceReport } from "./types.ts";

/** What a runtime tells of its machine. */
export interface Machine {
  runtime: string;
  processor: string | null;
  cores: number;
  physicalCores: number | null;
  freeMemory: number | null;
}

/** More than caches hold, and less than a phone has. */
const READ_BYTES = 256e6;
const STREAMS = [1, 2, 8];
const REPEAT = 5;

export async function deviceReport(outside: Outside, machine: Machine, signal?: AbortSignal): Promise<DeviceReport> {
  const engine = new UnstableEngine(outside);
  try {
    const args = { settings: {}, bytes: READ_BYTES, streams: STREAMS, repeat: REPEAT };
    const { flavour, threads, read, multiply } = await engine.roofline(args, signal);
    return {
      date: new Date().toISOString(),
      ...machine,
      simd: flavour.endsWith("relaxed") ? "relaxed" : "simd128",
      flavour,
      threads,
      readGbPerSecond: Math.max(...read.map(median)),
      gmacPerSecond: median(multiply),
    };
  } finally {
    await engine.close();
  }
}

/** Tokens that are written for a measurement, and how often each is repeated. */
const WRITTEN = 12;
const TIMES = 2;
/** Milliseconds of the whole probe, after which larger batches are left out. */
const PROBE_MS = 2000;

/** The times of steps with so many requests at once, and of a chunk of a prompt, as requests of the public API see them. */
export async function probe(
  model: Model,
  { most, prefillChunk, signal }: { most: number; prefillChunk: number; signal?: AbortSignal | undefined },
): Promise<Steps> {
  const { vocab, contextLength } = model.info;
  let salt = 0;
  const prompt = (tokens: number) => {
    salt += 7919;
    return Array.from({ length: tokens }, (_, i) => (31 * i + salt) % vocab);
  };
  const options = { temperature: 0.8, ignoreEos: true, signal } as const;
  await model.warmup();
  const begun = performance.now();
  const steps: { rows: number; ms: number }[] = [];
  const decode = async (rows: number) => {
    const found: number[] = [];
    for (let time = 0; time < TIMES; time++) {
      const all = Array.from({ length: rows }, (_, seed) =>
        model.generate(prompt(4), { ...options, seed, maxTokens: WRITTEN }),
      );
      const ended = await Promise.all(all.map(({ finished }) => finished));
      found.push(...ended.map(({ timings }) => timings.predictedMs / (timings.predictedN - 1)));
    }
    steps.push({ rows, ms: median(found) });
  };
  const chunk = Math.min(prefillChunk, contextLength - 1);
  const prefill = async (rows: number) => {
    const found: number[] = [];
    for (let time = 0; time < TIMES; time++) {
      const { timings } = await model.generate(prompt(rows), { ...options, seed: time, maxTokens: 1 }).finished;
      found.push(timings.ttftMs);
    }
    steps.push({ rows, ms: Math.min(...found) });
  };
  await decode(1);
  if (chunk > 64) await prefill(chunk);
  for (let rows = 4; rows <= most && performance.now() - begun < PROBE_MS; rows *= 4) await decode(rows);
  return rising(steps);
}

/** Times of steps from what a machine reads and multiplies: the larger of the two, less than at best. */
export function estimate(device: DeviceReport, about: Description, rows: readonly number[]): Steps {
  const [{ bytesPerToken }] = about.heads as [Description["heads"][number]];
  const readMs = bytesPerToken / (READ_SHARE * device.readGbPerSecond * 1e6);
  const rowMs = about.parameters / (MULTIPLY_SHARE * device.gmacPerSecond * 1e6);
  return rising(rows.map((count) => ({ rows: count, ms: Math.max(readMs, rowMs * count) + STEP_MS })));
}

/** What kernels reach of the best, as the project's own benchmarks show it. */
const [READ_SHARE, MULTIPLY_SHARE] = [0.75, 0.5];
/** Of a step, for all that is no product. */
const STEP_MS = 0.1;

/** In order of rows, and never faster with more of them. */
function rising(steps: { rows: number; ms: number }[]): Steps {
  const sorted = steps.sort((a, b) => a.rows - b.rows);
  for (const [i, step] of sorted.entries()) if (i > 0) step.ms = Math.max(step.ms, sorted[i - 1]!.ms);
  return sorted;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
