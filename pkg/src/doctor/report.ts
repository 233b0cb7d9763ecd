import type { AbortSignal } from "../types/web.ts";

export interface DoctorOptions {
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
  /** What to do, the most important first; empty where nothing could be better. */
  advice: Advice[];
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
