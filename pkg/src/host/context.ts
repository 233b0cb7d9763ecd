/** What a load needs from its surroundings, and what it leaves behind. */

import type { EngineSettings } from "../rpc/protocol.ts";
import type { ModelInfo, Progress } from "../types/index.ts";
import type { Glue, Instance } from "../wasm/load.ts";
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

/** What one instance has of a model. */
export interface LoadedPart extends Instance {
  engine: Glue["Engine"]["prototype"];
}

/** Bytes that the instances of a model hold. */
export const heldBytes = (instances: readonly Instance[]): number =>
  instances.reduce((sum, { memory }) => sum + memory.buffer.byteLength, 0);

/** A loaded model. */
export interface Loaded {
  engine: Glue["Engine"]["prototype"];
  text: Text;
  info: ModelInfo;
  /** The instances that have a part of the model, each with its part's own engine. The first decides. */
  parts: readonly [LoadedPart, ...LoadedPart[]];
  /** By which the engine runs. */
  settings: EngineSettings;
  /** Bytes of the memory that adapters may take. */
  maxAdapterBytes: number;
}
