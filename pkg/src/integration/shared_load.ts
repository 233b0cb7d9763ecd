/** One load for any number of users of a model. */

import type { LoadOptions, Model, ModelSource, Progress } from "../types/index.ts";

/**
 * `idle` before the first user and after the last one, `loading`, `ready` with a model, `error` where a load failed or a loaded model
 * was lost.
 */
export type LoadStatus = "idle" | "loading" | "ready" | "error";

/** What is known of a shared load. It is another object after each change, and only then. */
export interface LoadState {
  readonly status: LoadStatus;
  /** How far a load is; null before its first report. */
  readonly progress: Progress | null;
  /** Where `status` is `ready`. */
  readonly model: Model | null;
  /** Where `status` is `error`. */
  readonly error: unknown;
}

/** What a load is given besides its source and its options. */
export interface LoadHooks {
  signal: AbortSignal;
  onProgress(progress: Progress): void;
}

const IDLE: LoadState = { status: "idle", progress: null, model: null, error: null };

/** A load under way, or the model that came of it. */
interface Current {
  promise: Promise<Model>;
  abort: AbortController;
  /** Those who wait for it by `get`, or hold it. */
  users: number;
}

/**
 * A model that is loaded when the first user asks for it, once for all of them.
 *
 * @example
 * ```ts
 * import { load } from "ternlight";
 * import demo from "ternlight/demo";
 * import { SharedLoad } from "ternlight/integration";
 *
 * const shared = new SharedLoad((hooks) => load(demo, hooks));
 * shared.subscribe(() => console.log(shared.state.status));
 * const [one, same] = await Promise.all([shared.get(), shared.get()]);
 * console.log(one === same);
 * await shared.close();
 * ```
 */
export class SharedLoad {
  readonly #load: (hooks: LoadHooks) => Promise<Model>;
  readonly #listeners = new Set<() => void>();
  #state = IDLE;
  #current: Current | null = null;
  #holds = 0;
  /** Somebody uses the model by `get`, and nobody has closed it since. */
  #kept = false;

  /** @param load begins a load; it is called again after one that failed or was given up */
  constructor(load: (hooks: LoadHooks) => Promise<Model>) {
    this.#load = load;
  }

  get state(): LoadState {
    return this.#state;
  }

  /**
   * Calls back after each change of `state`.
   *
   * @returns what ends it
   */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * The model, which is loaded where it is not yet. It stays until `close()`. Where every caller has aborted before it was there, and
   * nobody holds it, the load is aborted too.
   *
   * @throws {EngineError} as `load`; the signal's reason after an abort
   */
  async get(signal?: AbortSignal): Promise<Model> {
    signal?.throwIfAborted();
    const current = this.#begun();
    current.users++;
    try {
      const model = await (signal ? abortable(current.promise, signal) : current.promise);
      this.#kept = true;
      return model;
    } finally {
      current.users--;
      if (signal?.aborted) this.#release();
    }
  }

  /**
   * Loads the model, unless it is there, and keeps it until it is let go. When all have let it go it is closed, or its load aborted, in
   * a turn of its own: who lets go and holds again at once, as React's strict mode does, finds it as it was.
   *
   * @returns what lets go; calling it again does nothing
   */
  hold(): () => void {
    const { promise } = this.#begun();
    // What went wrong stands in the state.
    promise.catch(() => {});
    this.#holds++;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#holds--;
      setTimeout(() => this.#release(), 0);
    };
  }

  /** Loads again after an error; otherwise it does nothing. */
  retry(): void {
    if (this.#state.status === "error") this.#begun().promise.catch(() => {});
  }

  /** Closes the model, or aborts its load, unless somebody holds it. The next user loads it anew. */
  async close(): Promise<void> {
    this.#kept = false;
    const current = this.#current;
    if (!current || this.#holds > 0) return;
    const { model } = this.#state;
    this.#current = null;
    this.#set(IDLE);
    if (model) await model.close();
    else current.abort.abort();
  }

  /** Closes what nobody uses any more. */
  #release(): void {
    const used = this.#holds > 0 || this.#kept || this.#current?.users;
    if (!used) void this.close().catch(() => {});
  }

  #begun(): Current {
    if (this.#current) return this.#current;
    const abort = new AbortController();
    const own = (state: Partial<LoadState>) => current === this.#current && this.#set({ ...IDLE, ...state });
    const hooks: LoadHooks = {
      signal: abort.signal,
      onProgress: (progress) => void own({ status: "loading", progress }),
    };
    const loading = Promise.resolve().then(() => this.#load(hooks));
    const promise = loading.then(
      (model) => {
        // An abort that came too late for the load.
        if (abort.signal.aborted) return model.close().then(() => abort.signal.throwIfAborted() as never);
        own({ status: "ready", model });
        void model.lost.then((error) => this.#lose(current, error));
        return model;
      },
      (error) => {
        this.#lose(current, error);
        throw error;
      },
    );
    const current: Current = { promise, abort, users: 0 };
    this.#current = current;
    own({ status: "loading" });
    return current;
  }

  /** There is no model any more, or never was; the next user loads another one. */
  #lose(current: Current, error: unknown): void {
    if (current !== this.#current) return;
    this.#current = null;
    this.#set({ ...IDLE, status: "error", error });
  }

  #set(state: LoadState): void {
    this.#state = state;
    for (const listener of [...this.#listeners]) listener();
  }
}

/** A promise that an abort rejects earlier. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

type Load = (source: ModelSource, options?: LoadOptions) => Promise<Model>;

/** By the function that loads, then by source and options. */
const byAddress = new WeakMap<Load, Map<string, SharedLoad>>();
const byObject = new WeakMap<Load, WeakMap<object, Map<string, SharedLoad>>>();

/**
 * The load of a source with some options, the same one for all who ask with equal ones: texts and URLs are compared by their address,
 * other sources and bytes of `prefill` by identity. `signal` and `onProgress` are each asker's own: see `SharedLoad.get`.
 *
 * @param load of `ternlight`
 */
export function sharedLoad(load: Load, source: ModelSource, options: LoadOptions = {}): SharedLoad {
  const { signal, onProgress, ...settings } = options;
  const key = keyOf(settings);
  const address = typeof source === "string" ? source : source instanceof URL ? source.href : null;
  const loads =
    address === null
      ? of(
          of(byObject, load, () => new WeakMap()),
          source as object,
          newMap,
        )
      : of(byAddress, load, newMap);
  return of(
    loads,
    `${address ?? ""}\n${key}`,
    () => new SharedLoad((hooks) => load(source, { ...settings, ...hooks })),
  );
}

const newMap = () => new Map<string, SharedLoad>();

function of<K, V>(map: { get(key: K): V | undefined; set(key: K, value: V): unknown }, key: K, make: () => V): V {
  const found = map.get(key) ?? make();
  map.set(key, found);
  return found;
}

/** Numbers of objects that are told apart by identity. */
const numbers = new WeakMap<object, number>();
let last = 0;

/** Options as a text, whatever their order. */
function keyOf(value: unknown): string {
  if (typeof value === "function" || ArrayBuffer.isView(value)) return `#${of(numbers, value, () => ++last)}`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "undefined";
  if (Array.isArray(value)) return `[${value.map(keyOf).join()}]`;
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return `{${entries
    .map(([name, one]) => `${JSON.stringify(name)}:${keyOf(one)}`)
    .sort()
    .join()}}`;
}
