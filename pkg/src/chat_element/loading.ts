/** The model of a chat: looked at first, loaded at once or when the visitor agrees, let go with the element. */

import { type AvailabilityTools, availability } from "../integration/availability.ts";
import { type SharedLoad, sharedLoad } from "../integration/shared_load.ts";
import type { CanRun, LoadOptions, Model, ModelCache, ModelSource, Progress } from "../types/index.ts";

/** Of `ternlight`. */
export interface Engine extends AvailabilityTools {
  load(source: ModelSource, options?: LoadOptions): Promise<Model>;
  cache: ModelCache;
}

/** Modules that come with the first model. */
export interface Modules {
  engine(): Promise<Engine>;
  demo(): Promise<ModelSource>;
}

/** `confirm` waits for the visitor. */
export type LoadingStatus = "empty" | "checking" | "confirm" | "loading" | "ready" | "error";

export interface LoadingState {
  readonly status: LoadingStatus;
  /** Bytes to download, where `status` is `confirm` and they are known. */
  readonly size: number | null;
  readonly progress: Progress | null;
  readonly model: Model | null;
  readonly error: unknown;
}

export interface Wanted {
  src: string;
  /** Nothing is asked of any server before the visitor agrees. */
  confirm: boolean;
  loadOptions: LoadOptions;
}

/** Bytes that are downloaded without a question, as those of a picture or two are. */
const SMALL = 20e6;

/** The demo model has none: it goes on with the story that the messages are. */
const DEMO_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}";

const EMPTY: LoadingState = { status: "empty", size: null, progress: null, model: null, error: null };

export class Loading {
  readonly #modules: Modules;
  readonly #changed: () => void;
  #state = EMPTY;
  #wanted: Wanted | null = null;
  #abort = new AbortController();
  #shared: SharedLoad | null = null;

  constructor(modules: Modules, changed: () => void) {
    this.#modules = modules;
    this.#changed = changed;
  }

  get state(): LoadingState {
    return this.#state;
  }

  /** Begins with a model; one before it is let go. */
  want(wanted: Wanted): void {
    this.end();
    this.#wanted = wanted;
    if (wanted.confirm) this.#set({ status: "confirm" });
    else void this.#run((signal) => this.#check(wanted, signal));
  }

  /** Loads what is wanted, whether or not the visitor has been asked; after an error it loads again. */
  load(): void {
    const { status } = this.#state;
    const wanted = this.#wanted;
    if (!wanted || status === "loading" || status === "ready") return;
    this.#renew();
    void this.#run((signal) => this.#load(wanted, signal));
  }

  /** Ends a load; the visitor may begin it again. */
  cancel(): void {
    if (this.#state.status !== "loading") return;
    const size = this.#state.progress?.total || null;
    this.#renew();
    this.#set({ status: "confirm", size });
  }

  /** Lets the model go: a load that nobody else waits for is aborted, a model that nobody else has is closed. */
  end(): void {
    this.#renew();
    this.#wanted = null;
    this.#set({});
  }

  /** Ends what is under way for what is wanted now. */
  #renew(): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#shared = null;
  }

  async #run(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = this.#abort;
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) this.#set({ status: "error", error });
    }
  }

  /** Loads a model that is small, or here already; the visitor is asked about another one. */
  async #check(wanted: Wanted, signal: AbortSignal): Promise<void> {
    this.#set({ status: "checking" });
    const engine = await this.#modules.engine();
    const [source, options] = await this.#sourceOf(wanted);
    let found: CanRun | undefined;
    const canRun: Engine["canRun"] = async (...given) => {
      found = await engine.canRun(...given);
      return found;
    };
    const known = await availability({ cache: engine.cache, canRun }, source, { ...options, signal });
    signal.throwIfAborted();
    const size = found?.needed.weights ?? 0;
    // One that cannot run here says so when it is loaded.
    if (known === "downloadable" && size > SMALL) this.#set({ status: "confirm", size });
    else await this.#load(wanted, signal);
  }

  async #load(wanted: Wanted, signal: AbortSignal): Promise<void> {
    this.#set({ status: "loading" });
    const engine = await this.#modules.engine();
    const [source, options] = await this.#sourceOf(wanted);
    signal.throwIfAborted();
    const shared = sharedLoad(engine.load, source, options);
    this.#shared = shared;
    const ends = [shared.subscribe(() => this.#follow(shared)), shared.hold()];
    signal.addEventListener("abort", () => ends.forEach((end) => void end()), { once: true });
    this.#follow(shared);
  }

  #follow(shared: SharedLoad): void {
    if (shared !== this.#shared) return;
    const { status, ...rest } = shared.state;
    // Nobody has it any more, so it was closed from outside.
    this.#set({ ...rest, status: status === "idle" ? "confirm" : status });
  }

  async #sourceOf({ src, loadOptions }: Wanted): Promise<[ModelSource, LoadOptions]> {
    if (src !== "demo") return [src, loadOptions];
    return [await this.#modules.demo(), { chatTemplate: DEMO_TEMPLATE, ...loadOptions }];
  }

  #set(state: Partial<LoadingState>): void {
    this.#state = { ...EMPTY, ...state };
    this.#changed();
  }
}
