/** The report of a load test: a row for each number of requests in flight, as JSON, CSV or text. */

import { knee } from "../knee.ts";
import type { Machine } from "../report.ts";
import type { Sample } from "../sample.ts";
import { percentile } from "../stats.ts";

/** How requests ended. Together they are all that were planned. */
export interface Outcomes {
  whole: number;
  /** Broken off by the client, as planned. */
  aborted: number;
  /** The target was too busy. */
  refused: number;
  failed: number;
  /** Still running a minute after the last request. */
  unfinished: number;
  /** Never sent, because too many waited on this side. */
  dropped: number;
}

/** Milliseconds at each percentile, `p50` and so on, and the longest; empty where nothing was seen. */
export type Latencies = Record<string, number>;

interface Memory {
  wasmBytes: number | null;
  processBytes: number | null;
}

export interface LoadRow extends Outcomes {
  /** The most requests in flight; null for any number. */
  size: number | null;
  offeredPerSecond: number | null;
  users: number | null;
  /** From the beginning to the last answer. */
  seconds: number;
  planned: number;
  /** Messages of failed requests, and how often each came. */
  errors: Record<string, number>;
  /** Whole answers a second. */
  servedPerSecond: number;
  /** Tokens of all answers a second. */
  tokensPerSecond: number;
  tokens: number;
  /** Of whole answers. */
  promptTokens: number;
  /** From the moment for which a request was planned to the first piece and to the end of its answer, and between two pieces. */
  firstMs: Latencies;
  gapMs: Latencies;
  wholeMs: Latencies;
  /** How late requests were given to the target's queue: the load test's own error. */
  lateMs: Latencies;
  memory: { before: Memory; after: Memory };
  /** Cores that the target's process kept busy: with a model in it this one, else the server's, where its metrics tell. */
  cpuCores: number | null;
  /** Cores that the load test itself kept busy beside a server; null where the model is in this process. */
  clientCores: number | null;
}

export interface LoadReport {
  date: string;
  machine: Machine;
  /** The model or the server. */
  target: string;
  duration: number;
  seed: number;
  percentiles: number[];
  rows: LoadRow[];
  /** The number in flight beyond which little speed is gained; null where there is none. */
  knee: number | null;
}

export function latencies({ values, most }: Sample, percentiles: readonly number[]): Latencies {
  if (values.length === 0) return {};
  const entries = percentiles.map((p) => [`p${p}`, percentile(values, p)] as const);
  return Object.fromEntries([...entries, ["most", most]]);
}

export function kneeOf(rows: readonly LoadRow[]): number | null {
  const sized = rows.filter(({ size }) => size !== null);
  const sizes = sized.map(({ size }) => size!);
  const speeds = sized.map(({ tokensPerSecond }) => tokensPerSecond);
  return sizes[knee(sizes, speeds, "up") ?? -1] ?? null;
}

const COUNTS = ["planned", "whole", "aborted", "refused", "failed", "unfinished", "dropped"] as const;
const RATES = ["servedPerSecond", "tokensPerSecond", "tokens", "promptTokens", "cpuCores", "clientCores"] as const;
const TIMES = ["firstMs", "gapMs", "wholeMs", "lateMs"] as const;

/** A line for each row, in the order of the report's names. */
export function csv({ rows, percentiles }: LoadReport): string {
  const points = [...percentiles.map((p) => `p${p}`), "most"];
  const head = ["size", "offeredPerSecond", "users", "seconds", ...COUNTS, ...RATES];
  const times = TIMES.flatMap((name) => points.map((point) => `${name}.${point}`));
  const memory = ["wasmBytes", "processBytes"] as const;
  const lines = rows.map((row) => [
    ...[row.size, row.offeredPerSecond, row.users, row.seconds],
    ...[...COUNTS, ...RATES].map((name) => row[name]),
    ...TIMES.flatMap((name) => points.map((point) => row[name][point])),
    ...memory.map((name) => row.memory.after[name]),
  ]);
  return `${[[...head, ...times, ...memory], ...lines].map((line) => line.map((value) => value ?? "").join(",")).join("\n")}\n`;
}
