/** A model that is loaded at its first use, once for all who name the same source and options. */

import { wrong } from "../options/check.ts";
import type { LoadOptions, Model, ModelSource, Progress } from "../types/index.ts";
import { type Availability, type AvailabilityTools, availability } from "./availability.ts";
import { isModel } from "./is_model.ts";
import { type SharedLoad, sharedLoad } from "./shared_load.ts";
import { eitherSignal } from "./signals.ts";

/** As the browsers' Prompt API tells it. */
export type LazyAvailability = Availability | "downloading";

/** A source as `load` of ternlight takes it, or a model that is loaded. */
export type SourceOrModel = ModelSource | Model;

/** Functions of `ternlight`, or of `ternlight/edge`. */
export interface LoadTools extends AvailabilityTools {
  load(source: ModelSource, options?: LoadOptions): Promise<Model>;
}

export interface LoadCall {
  /** Aborts the wait; the load itself goes on where others wait for it, too. */
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: Progress) => void) | undefined;
}

export interface LazyModel {
  /** The address without what may be secret in it, or what the model calls itself. */
  readonly name: string;
  /** Loads it, unless it is there. */
  model(call?: LoadCall): Promise<Model>;
  availability(): Promise<LazyAvailability>;
  /** Gives the memory back; a model that was given loaded stays open. */
  close(): Promise<void>;
}

/**
 * @param tools functions of `ternlight`, or of `ternlight/edge`
 * @param options of the load; its `signal` and `onProgress` belong to each call that waits for it
 */
export function lazyModel(tools: LoadTools, source: SourceOrModel, options: LoadOptions = {}): LazyModel {
  if (isModel(source)) return ofModel(source);
  // The rest of what is no source is refused by the load.
  if (typeof source !== "string" && Object(source) !== source)
    throw wrong("load", "source", "a model, or where its bytes are", source);
  return ofSource(tools, source, options);
}

function ofModel(model: Model): LazyModel {
  return {
    name: model.info.name ?? model.info.architecture,
    async model({ signal } = {}) {
      signal?.throwIfAborted();
      return model;
    },
    availability: async () => "available",
    close: async () => {},
  };
}

function ofSource(tools: LoadTools, source: ModelSource, options: LoadOptions): LazyModel {
  const { signal: outer, onProgress: told, ...settings } = options;
  const shared = sharedLoad(tools.load, source, settings);
  return {
    name: nameOf(source),
    async model({ signal, onProgress } = {}) {
      const tell = (progress: Progress) => {
        told?.(progress);
        onProgress?.(progress);
      };
      const stop = told || onProgress ? forward(shared, tell) : null;
      try {
        return await shared.get(eitherSignal(outer, signal));
      } finally {
        stop?.();
      }
    },
    async availability() {
      const { status } = shared.state;
      if (status === "ready") return "available";
      return status === "loading" ? "downloading" : availability(tools, source, settings);
    },
    close: () => shared.close(),
  };
}

/** Passes on how far a load is, the latest first. */
function forward(shared: SharedLoad, onProgress: (progress: Progress) => void): () => void {
  let last: Progress | null = null;
  const tell = () => {
    const { progress } = shared.state;
    if (progress && progress !== last) onProgress(progress);
    last = progress;
  };
  tell();
  return shared.subscribe(tell);
}

/** An address without what may be secret in it, or the last part of a path. */
function nameOf(source: ModelSource): string {
  const { name } = source as { name?: unknown };
  if (typeof source !== "string" && !(source instanceof URL)) return typeof name === "string" && name ? name : "model";
  const text = String(source);
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  return url.protocol === "data:" || url.protocol === "blob:"
    ? url.protocol
    : `${url.protocol}//${url.host}${url.pathname}`;
}
