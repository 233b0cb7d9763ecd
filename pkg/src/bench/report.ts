/** What a benchmark tells, as JSON: the same from a terminal and from a page. */

import type { ModelInfo } from "../types/index.ts";
import type { Spread } from "./stats.ts";

export interface BenchSettings {
  /** Tokens of a prompt, and of an answer behind its first. */
  prompt: number;
  decode: number;
  /** Conversations side by side. */
  batch: number;
  /** Tokens that each holds before its prompt. */
  ctx: number;
  /** Runs before those that count. */
  warmup: number;
  repeat: number;
}

export interface BenchReport {
  /** ISO 8601. */
  date: string;
  machine: Machine;
  engine: Pick<
    ModelInfo,
    "flavour" | "dotProduct" | "threads" | "threadsReason" | "kvCacheType" | "contextLength" | "activations"
  >;
  model: Pick<ModelInfo, "name" | "architecture" | "parameters" | "bitsPerWeight" | "kinds" | "config"> & {
    /** Where it came from. */
    source: string;
    /** Of the packed weights that a step reads: the layers' and the head's. */
    weightBytes: number;
  };
  settings: BenchSettings;
  loadMs: number;
  prefill: { tokensPerSecond: Spread; gmacPerSecond: number };
  decode: {
    tokensPerSecond: Spread;
    /** Of one step, which gives each conversation a token. */
    stepMs: { p50: number; p95: number; p99: number; mean: number; jitter: number };
    /** Weights read for one step. */
    bytesPerStep: number;
    bytesPerToken: number;
    gbPerSecond: number;
  };
  /** One conversation through the public API, text and messages included; null with others or a past. */
  endToEnd: { tokensPerSecond: Spread; firstTokenMs: Spread; overheadMsPerToken: number } | null;
  memory: {
    /** Of the engine's instance. */
    wasmBytes: number;
    /** What it grew by while the runs that count went on. */
    grownBytes: number;
    /** The process at its most; null where a runtime does not tell. */
    peakRssBytes: number | null;
  };
  roofline: Roofline | null;
  ratios: Ratios | null;
  profile: { prefill: ProfileRow[]; decode: ProfileRow[] } | null;
  /** One prompt of so many tokens, and the token after it. */
  trace: { tokens: number; prefill: TraceRow[]; decode: TraceRow[] } | null;
}

export interface Machine {
  runtime: string;
  cpu: string | null;
  cores: number;
}

export interface Roofline {
  bytes: number;
  /** GB/s for each number of streams that a thread reads side by side. */
  read: { streams: number; gbPerSecond: Spread }[];
  /** The best of them. */
  gbPerSecond: number;
  /** The dot product's, with everything in registers. */
  gmacPerSecond: number;
  multiply: Spread;
}

/** Shares of the roofline. `Matrices` are those of the operations that multiply weights, known with a profile. */
export interface Ratios {
  decodeToRead: number;
  prefillToMultiply: number;
  decodeMatricesToRead: number | null;
  prefillMatricesToMultiply: number | null;
}

/** One kind of operation in one run of a phase. */
export interface ProfileRow {
  /** `other` is what lies between them: scheduling of messages, the edge to JavaScript. */
  operation: string;
  calls: number;
  ms: number;
  share: number;
  bytes: number;
  gbPerSecond: number;
  gmacPerSecond: number;
}

/** A matrix as it is packed, and the numbers that it met. */
export interface TraceRow {
  /** GGUF's, without `.weight`; the head is `output`, tied or not. */
  name: string;
  rows: number;
  cols: number;
  /** Of a code, or of a dense value. */
  bits: number;
  /** What one scale covers, and how it is kept. */
  scales: string;
  /** How the input is rounded. */
  activations: string;
  /** Normed, and not yet rounded. */
  input: TraceValues;
  /** With what a bias adds. */
  output: TraceValues;
}

/** Of all that are numbers; `nan` counts those that are none. */
export interface TraceValues {
  min: number;
  max: number;
  rms: number;
  nan: number;
}

/** Operations that read the weights. */
export const MATRICES: readonly string[] = ["qkv", "output", "gate_up", "down", "head"];
