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
    | "ternaryPacking"
    | "oneBitSums"
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
    /** The same percentiles run by run: how much they vary. */
    tailMs: { p95: Spread; p99: Spread };
    /** Bytes of weights that one step reads. */
    bytesPerStep: number;
    bytesPerToken: number;
    gbPerSecond: number;
  };
  /** One conversation through the public API, text and messages included; null with `batch` above 1 or with `ctx`. */
  endToEnd: { tokensPerSecond: Spread; firstTokenMs: Spread; overheadMsPerToken: number } | null;
  /** What the system counts of the process while it decodes; null where the runtime does not tell. */
  process: ProcessUse | null;
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
  /** The matrices' values for one prompt of `tokens` tokens and for the token after it, and where the time of each goes. */
  trace: {
    tokens: number;
    prefill: TraceRow[];
    decode: TraceRow[];
    matrices: MatrixTime[];
    layers: { prefill: LayerTime[]; decode: LayerTime[] };
  } | null;
  /** A long run, where one was asked for. */
  overTime: OverTime | null;
}

/** What the system has counted of this process and of its machine, from some moment on. */
export interface Counters {
  /** The moment at which they were read. */
  atMs: number;
  /** Processor time of all threads. */
  cpuMs: number;
  minorFaults: number;
  majorFaults: number;
  /** Time that the machine's cores were busy, whoever used them, and that its hypervisor gave to others. */
  machine: { busyMs: number; stolenMs: number } | null;
  /** What the processor's packages and memories have used, in microjoules; a counter begins anew at `range`. */
  energy: { microjoules: number; range: number }[] | null;
}

/** The use that decoding makes of the machine. What the system does not tell is null. */
export interface ProcessUse {
  tokens: number;
  seconds: number;
  /** Pages that were mapped when they were first touched, and those that were read from a disk. */
  minorFaultsPerToken: number;
  majorFaultsPerToken: number;
  /** How many cores the process kept busy, and that as a share of its threads. */
  cpuCores: number;
  cpuShare: number;
  /** How many cores other programs kept busy, and how many were another machine's. */
  otherCores: number | null;
  stolenCores: number | null;
  /** Of all packages and their memory, other programs included. */
  joulesPerToken: number | null;
}

/** The course of a run of minutes or hours. */
export interface OverTime {
  seconds: number;
  /** Equal parts of the time, at most 120. */
  spans: TimeSpan[];
  /** The first and the last minute; a third of the time each where it is shorter than three minutes. */
  first: TimeSpan;
  last: TimeSpan;
  /** Speed of the last one ÷ speed of the first one: below 1 where the machine throttles. */
  speed: number;
  /** Growth from the first to the last as a share. */
  growth: { wasm: number; process: number | null };
}

/** A part of a run. Memory is the mean of what was seen. */
export interface TimeSpan {
  /** Seconds after the beginning of the run. */
  from: number;
  to: number;
  tokens: number;
  tokensPerSecond: number;
  wasmBytes: number;
  /** The process's memory; null where the runtime does not tell. */
  processBytes: number | null;
}

/** Reports of one model for several numbers of conversations and lengths of their past. */
export interface SweepReport {
  date: string;
  sweep: { batch: number[]; ctx: number[] };
  /** One for each pair; the batches of a context stand together. */
  reports: BenchReport[];
  /** For each context: beyond which batch little is gained. */
  batchKnees: { ctx: number; knee: number | null }[];
  /**
   * For each batch: beyond which context a step's time rises faster, and the straight line through the times: what a step takes without a
   * past, what 1,000 tokens of it add, and the past that doubles a step's time. Without a sweep of contexts there is none.
   */
  ctxKnees: { batch: number; knee: number | null; baseMs: number; msPer1000: number; doublesAt: number | null }[];
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

/** The time of a matrix alone, with one token: from the quietest of several runs over all matrices. */
export interface MatrixTime {
  /** As in `TraceRow`. */
  name: string;
  bytes: number;
  ms: number;
  /** What reading its bytes takes, with nothing done to them. */
  readMs: number;
  /** The share of the time that is left when the reading is taken away: unpacking codes and multiplying them; null for what no clock sees. */
  unpackShare: number | null;
  gbPerSecond: number;
}

/** Where the time of a layer goes, for one token or one prompt; null is what stands outside of the layers. */
export interface LayerTime {
  layer: number | null;
  /** By operation: milliseconds, and bytes of weights, keys and values. */
  operations: Record<string, { ms: number; bytes: number }>;
  ms: number;
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
