import type { LoadOptions, MemoryNeeds } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";

export interface DoctorOptions {
  /** Options with which the model is to be loaded. With them an address is examined as a model too. @default none */
  load?: Readonly<LoadOptions> | undefined;
  /** Aborts the examination; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** What an examination of a runtime and of a model's address finds. */
export interface DoctorReport {
  /** `Chrome 156`, `Node 24.21.0` */
  runtime: string;
  /** Whether the page is cross-origin isolated; null where there are no pages. */
  isolated: boolean | null;
  /** What WebAssembly computes with; null where it has no SIMD, or may not run at all. */
  simd: "relaxed" | "simd128" | null;
  /** The build that `load` takes; null where none runs. */
  flavour: string | null;
  /** Threads that `load` takes. */
  threads: number;
  cores: number;
  threadsReason: string | null;
  /** Why the engine's worker or its wasm does not start; null where they do. */
  engineError: string | null;
  memory: {
    /** The largest memory, in bytes, that this runtime reserves for one model. It is not taken yet. */
    reservable: number;
    /** Free bytes, or roughly what the device has; null where the runtime does not tell. */
    free: number | null;
  };
  /** What may be kept for this page, in bytes; null where there is no such storage or it does not tell. */
  storage: { quota: number; usage: number; persisted: boolean } | null;
  /** What was found at the address; null where none was given. */
  source: SourceReport | null;
  /** What the system tells of the process's processors and limits; null where it is not Linux, and in pages. */
  system: SystemReport | null;
  /** What a load of the model would plan; null where none was given. */
  model: ModelReport | null;
  /** What to do, the most important first; empty where nothing could be better. */
  advice: Advice[];
}

export interface SystemReport {
  /** Processors that the process may run on, each hyper-thread one; null where that is not told. */
  processors: number | null;
  /** Of these, cores without their hyper-threads. */
  physicalCores: number | null;
  /** How their clocks are governed, each name once: `performance`, `powersave` …; empty where that is not told. */
  governors: string[];
  /** Cores whose time the process's control groups let it use; null where they set no limit. */
  cpuLimit: number | null;
  /** Bytes that they let it use; null where they set no limit. */
  memoryLimit: number | null;
}

export interface ModelReport {
  /** Why it cannot be loaded; null where it can. */
  error: string | null;
  /** Threads that were asked for; null where the default was. */
  askedThreads: number | null;
  contextLength: number;
  /** With the options given. */
  memory: MemoryNeeds;
  /** What keys and values would take as f16. */
  f16KvBytes: number;
}

export interface SourceReport {
  /** Without user, password and query, which may be secret. */
  url: string;
  /** The answer's status; null where none came, or none that a page may see. */
  status: number | null;
  error: string | null;
  /** Bytes of the whole file; null where the answer does not show it. */
  size: number | null;
  /** Whether a part of the file can be asked for. */
  range: boolean;
  /** The header that tells versions of the file apart, so that an interrupted download can continue; null where none is shown. */
  validator: "ETag" | "Last-Modified" | null;
  contentType: string | null;
  /** The format that the file's first bytes show. */
  format: "GGUF" | "safetensors" | "web page" | "unknown" | null;
  /** Whether pages of another origin may read it; null where a page of the same origin asked, which cannot see that. */
  cors: boolean | null;
}

export interface Advice {
  /** `error`: it does not run; `warning`: it runs slower or breaks sooner than it could; `note`: worth knowing. */
  level: "error" | "warning" | "note";
  text: string;
}
