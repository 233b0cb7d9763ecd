/** Advice on settings: what is asked, what is known of a machine, and what is recommended. */

import type { Head, KvCacheType, LoadOptions, MemoryNeeds } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";

/** What a machine does at best, as a probe of a second measures it. */
export interface DeviceReport {
  /** ISO 8601. */
  date: string;
  runtime: string;
  /** The processor's name; null where the runtime does not tell. */
  processor: string | null;
  /** Threads that can run at once, and cores without hyper-threads; null where the runtime does not tell. */
  cores: number;
  physicalCores: number | null;
  simd: "relaxed" | "simd128";
  flavour: string;
  threads: number;
  /** GB/s that all threads together read. */
  readGbPerSecond: number;
  /** 10⁹ products of int8 a second. */
  gmacPerSecond: number;
  /** Free bytes; null where the runtime does not tell. */
  freeMemory: number | null;
}

export interface RecommendOptions {
  /** Users who ask at once, each again when the answer is there. @default 1 user */
  users?: number | undefined;
  /** @default 128 tokens */
  promptTokens?: number | undefined;
  /** @default 64 tokens */
  answerTokens?: number | undefined;
  /** Milliseconds within which 95 of 100 answers are to be whole. @default none */
  p95Ms?: number | undefined;
  /** Bytes that the model may take. @default what the runtime has free, at most 8 WebAssembly memories of 4 GiB */
  memory?: number | undefined;
  /** Options of `load` that are settled: they are kept, and the others are recommended beside them. @default none */
  load?: Readonly<LoadOptions> | undefined;
  /** Another machine's report; the model is not loaded then. @default this machine, by a probe with the model */
  device?: DeviceReport | undefined;
  /** Aborts the probe; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** What is expected of a setting. */
export interface Prediction {
  tokensPerSecond: number;
  /** Milliseconds from a request to its first token and to its end. */
  firstTokenMs: { p50: number; p95: number };
  answerMs: { p50: number; p95: number };
  memory: MemoryNeeds;
}

export interface Recommendation {
  /** Whether there is a setting that fits the memory and the p95 that were asked for. */
  fits: boolean;
  /** What is missing, in words; null where nothing is. */
  missing: string | null;
  /** Options of `load`. */
  settings: Omit<LoadOptions, "signal" | "onProgress"> & { maxSequences: number; kvCacheType: KvCacheType; head: Head };
  predicted: Prediction;
  /** Every number of requests at once that was considered. */
  considered: {
    maxSequences: number;
    tokensPerSecond: number;
    p95Ms: number;
    memoryBytes: number;
    /** Whether it has room in the memory, and whether it also keeps the p95. */
    hasRoom: boolean;
    fits: boolean;
  }[];
  /** Why, a sentence each. */
  why: string[];
  /**
   * From what it is predicted: milliseconds of a step of so many answers, of one that reads so many tokens of prompts, and what each answer
   * adds to such a step.
   */
  steps: { answers: { rows: number; ms: number }[]; prompts: { rows: number; ms: number }[]; besideMs: number };
  measured: "this machine" | "a report";
}
