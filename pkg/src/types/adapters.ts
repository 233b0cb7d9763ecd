/** LoRA adapters. */

import type { SourceOptions } from "./sources.ts";
import type { AbortSignal } from "./web.ts";

/** An adapter that `loadAdapter` has loaded, in one request. */
export interface AdapterUse {
  /** The adapter's name. */
  name: string;
  /** What the adapter adds is multiplied by this, from -1000 to 1000; 0 adds nothing. @default 1 */
  scale?: number | undefined;
}

export interface AdapterOptions extends SourceOptions {
  /** The name that requests use. @default the name of its file without the ending, or of its folder */
  name?: string | undefined;
  /** Aborts the load of the adapter; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface AdapterInfo {
  name: string;
  format: "gguf" | "safetensors";
  /** The largest rank of its matrices. */
  rank: number;
  /** How many of the model's matrices it adds to. */
  matrices: number;
  /** Bytes of memory that it takes. */
  bytes: number;
}
