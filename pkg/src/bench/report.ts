/** The report of a benchmark, as JSON: the same from a terminal and from a page. */

import type { ModelInfo } from "../types/index.ts";
import type { Spread } from "./stats.ts";

export interface BenchSettings {
  /** Tokens of a prompt; `decode` are those of an answer after its first. */
  prompt: number;
  decode: number;
  /** Conversations side by side. */
  batch: number;
  /** Tokens that each holds before its prompt. */
  ctx: number;
  /** Runs before the measured ones. */
  warmup: number;
  repeat: number;
}

export interface BenchReport {
  /** ISO 8601. */
  date: string;
  machine: Machine;
  engine: Pick<
    ModelInfo,
    | "flavour"
    | "dotProduct"
    | "weightPrefetch"
    | "threads"
    | "threadsReason"
    | "kvCacheType"
    | "contextLength"
    | "activations"
  >;
  model: Pick<ModelInfo, "name" | "architecture" | "parameters" | "bitsPerWeight" | "kinds" | "config"> & {
    /** Where it came from. */
    source: string;
    /** Bytes of the packed weights that a step reads: the layers' and the head's. */
    weightBytes: number;
  };
  settings: BenchSettings;
  loadMs: number;
  prefill: { tokensPerSecond: Spread; gmacPerSecond: number };
  decode: {
    tokensPerSecond: Spread;
    /** Milliseconds of one step, which gives each conversation a token. */
    stepMs: { p50: number; p95: number; p99: number; mean: number; jitter: number };
    /** Bytes of weights that one step reads. */
    bytesPerStep: number;
    bytesPerToken: number;
    gbPerSecond: number;
  };
  /** One conversation through the public API, text and messages included; null with `batch` above 1 or with `ctx`. */
  endToEnd: { tokensPerSecond: Spread; firstTokenMs: Spread; overheadMsPerToken: number } | null;
  memory: {
    /** Memory of the engine's instance. */
    wasmBytes: number;
    /** Its growth during the measured runs. */
    grownBytes: number;
    /** The process's peak; null where the runtime does not tell. */
    peakRssBytes: number | null;
  };
  roofline: Roofline | null;
  ratios: Ratios | null;
  profile: { prefill: ProfileRow[]; decode: ProfileRow[] } | null;
  /** The matrices' values for one prompt of `tokens` tokens, and for the token after it. */
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
  /** The best of these medians. */
  gbPerSecond: number;
  /** Products per second of the dot product instruction, in units of 10⁹, with everything in registers. */
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
  /** `other` is the time between operations: messages and calls from JavaScript. */
  operation: string;
  calls: number;
  ms: number;
  share: number;
  bytes: number;
  gbPerSecond: number;
  gmacPerSecond: number;
}

/** A matrix as it is packed, and the values that it processed. */
export interface TraceRow {
  /** The name in GGUF without `.weight`; the head is `output`, tied or not. */
  name: string;
  rows: number;
  cols: number;
  /** Bits of a code, or of a dense value. */
  bits: number;
  /** What one scale covers, and how it is stored. */
  scales: string;
  /** How the input is rounded. */
  activations: string;
  /** After the norm and before rounding. */
  input: TraceValues;
  /** With the bias. */
  output: TraceValues;
}

/** Statistics of all values that are numbers; `nan` counts the others. */
export interface TraceValues {
  min: number;
  max: number;
  rms: number;
  nan: number;
}

/** Operations that read the weights. */
export const MATRICES: readonly string[] = ["qkv", "output", "gate_up", "down", "head"];
