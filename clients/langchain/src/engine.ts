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

/** What the classes have beside what LangChain asks of them. */
export interface EngineUser {
  /** The source's address or the model's name. */
  readonly model: string;
  /** Loads the model ahead of its first call. */
  load(call?: LoadCall): Promise<Model>;
  /** Whether the model can be used here, and whether something has to be downloaded for it. */
  availability(): Promise<LazyAvailability>;
  /** Gives the model's memory back; one that was given loaded stays open. */
  close(): Promise<void>;
}

// biome-ignore lint/suspicious/noExplicitAny: TypeScript wants these parameters of every class that extends one it does not know
type Constructor<T = object> = abstract new (...given: any[]) => T;

/** A class of LangChain with a model behind it, from the first argument of its constructor. */
export function withEngine<Base extends Constructor>(base: Base): Base & Constructor<EngineUser> {
  abstract class WithEngine extends base implements EngineUser {
    readonly #lazy: LazyModel;

    // biome-ignore lint/suspicious/noExplicitAny: as above
    constructor(...given: any[]) {
      super(...given);
      const { model, loadOptions } = given[0] as EngineFields;
      this.#lazy = lazyModel({ load, canRun, cache }, model, loadOptions);
    }

    get model(): string {
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
  return WithEngine;
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
