/** What a load needs from its surroundings, and what it leaves behind. */

import type { ModelInfo, Progress } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import type { ThreadsOwner } from "../wasm/threads.ts";
import type { Platform } from "./platform.ts";
import type { Text } from "./text.ts";
import type { Timeline } from "./timeline.ts";

/** What an instance of the engine needs from the code that holds it. */
export interface InstanceContext {
  platform: Platform;
  signal: AbortSignal;
  /** A loaded instance cannot continue: one of its threads failed. */
  onFatal(error: unknown): void;
  /** Hears of the instance's threads, which it cannot watch itself while a step runs. */
  threads?: ThreadsOwner | undefined;
}

export interface LoadContext extends InstanceContext {
  onProgress(progress: Progress): void;
  /** Records what was done when, for a load that asked for it. */
  timeline?: Timeline | undefined;
}

/** A loaded model. */
export interface Loaded {
  engine: Glue["Engine"]["prototype"];
  text: Text;
  info: ModelInfo;
  memory: WebAssembly.Memory;
  glue: Glue;
  /** Bytes of the memory that adapters may take. */
  maxAdapterBytes: number;
}
