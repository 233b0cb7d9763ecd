/** The model behind a class of LangChain, and its share of the engine's batch. */

import { cache, canRun, type LoadOptions, load, type Model } from "ternlight";
import {
  type LazyAvailability,
  type LazyModel,
  type LoadCall,
  lazyModel,
  type SourceOrModel,
} from "ternlight/integration";

export interface EngineFields {
  /** A source as `load` of ternlight takes it, or a model that is loaded. It is loaded at its first use. */
  model: SourceOrModel;
  /** As of `load`. @default none */
  loadOptions?: LoadOptions | undefined;
}

export class Engine {
  readonly #lazy: LazyModel;

  constructor({ model, loadOptions }: EngineFields) {
    this.#lazy = lazyModel({ load, canRun, cache }, model, loadOptions);
  }

  get name(): string {
    return this.#lazy.name;
  }

  load(call?: LoadCall): Promise<Model> {
    return this.#lazy.model(call);
  }

  availability(): Promise<LazyAvailability> {
    return this.#lazy.availability();
  }

  close(): Promise<void> {
    return this.#lazy.close();
  }
}

/** Requests of a model that run, and who waits until one of them has ended. */
interface Places {
  running: number;
  waiting: (() => void)[];
}

const places = new WeakMap<Model, Places>();

/**
 * Takes one of the places of the model's batch for some work. LangChain begins all of a long list at once: what the batch has no place
 * for waits here, where there is no limit, and not in the engine's queue.
 */
export async function inPlace<T>(model: Model, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  const leave = await enter(model, signal);
  try {
    return await work();
  } finally {
    leave();
  }
}

/** @returns what gives the place to the next */
export async function enter(model: Model, signal: AbortSignal | undefined): Promise<() => void> {
  const own = places.get(model) ?? { running: 0, waiting: [] };
  places.set(model, own);
  if (own.running < model.info.maxSequences) own.running++;
  else await turn(own, signal);
  return () => {
    const next = own.waiting.shift();
    if (next) next();
    else own.running--;
  };
}

/** Waits for a place that another one leaves. */
function turn(own: Places, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const abort = () => {
      own.waiting.splice(own.waiting.indexOf(next), 1);
      reject(signal!.reason);
    };
    const next = () => {
      signal?.removeEventListener("abort", abort);
      resolve();
    };
    own.waiting.push(next);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
