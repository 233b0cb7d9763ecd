/** A model that is served: loaded, unloaded when it is idle, and replaced when its worker dies. */

import { isModel } from "../integration/is_model.ts";
import { TokenTexts } from "../integration/tokens.ts";
import { ApiError, retryHeaders } from "../openai/errors.ts";
import { wrong } from "../options/check.ts";
import type { AdapterInfo, Model, ModelSource, Progress } from "../types/index.ts";
import { hex } from "./hex.ts";
import { Pace } from "./pace.ts";

/** Loads a model. */
export type Loader = (more: { signal: AbortSignal; onProgress: (progress: Progress) => void }) => Promise<Model>;

export interface Ready {
  model: Model;
  tokens: TokenTexts;
  fingerprint: string;
}

/** Milliseconds to the next try to load a model that could not be loaded: each time twice as many, and so many at most. */
const RETRY_MS = 5000;
const MAX_RETRY_MS = 30_000;

export class Slot {
  readonly name: string;
  /** Unix seconds. */
  created = now();
  readonly pace = new Pace();
  /** Adapters by name, which are models of their own for clients; `always` is the scale that requests of the model itself use. */
  readonly adapters = new Map<string, { source: ModelSource; info: AdapterInfo; always: number; created: number }>();
  progress: Progress | null = null;
  state: "loading" | "ready" | "idle" | "failed" | "closed" = "loading";
  readonly #load: Loader;
  /** A model that was given loaded cannot be loaded again. */
  readonly #once: boolean;
  readonly #idleMs: number;
  readonly #abort = new AbortController();
  #ready: Promise<Ready>;
  #before = false;
  #users = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Why the last load failed, when, and the milliseconds from then to the next one. */
  #failure: unknown;
  #failedAt = 0;
  #retryMs = 0;
  readonly #wanted: Readonly<Record<string, ModelSource>>;

  /** @param wanted adapters that are loaded with the model, by name */
  constructor(
    name: string,
    load: Loader | Model,
    { idleSeconds = 0 } = {},
    wanted: Readonly<Record<string, ModelSource>> = {},
  ) {
    this.name = name;
    this.#once = typeof load !== "function";
    this.#load = typeof load === "function" ? load : async () => load;
    this.#idleMs = 1000 * idleSeconds;
    this.#wanted = wanted;
    this.#ready = this.#begin();
  }

  /** Settles when the model is there, or when it cannot be. */
  get loaded(): Promise<Ready> {
    return this.#ready;
  }

  /** The model for one request, which calls `release` at its end. A model that is still being loaded for the first time is a 503. */
  async use(): Promise<Ready & { release(): void }> {
    if (this.state === "loading" && !this.#before) throw this.unavailable();
    if (this.state === "closed")
      throw new ApiError(503, "the server is being stopped", { code: "stopping", headers: retryHeaders(1000) });
    // Where timers end with their request, as on edge workers, the next one tries again.
    const again = this.state === "failed" && !this.#once && performance.now() - this.#failedAt > this.#retryMs;
    if (this.state === "idle" || again) this.#ready = this.#begin();
    if (this.state === "failed") throw this.unavailable();
    this.#users++;
    clearTimeout(this.#timer);
    const release = () => this.#release();
    try {
      return { ...(await this.#ready), release };
    } catch {
      release();
      throw this.unavailable();
    }
  }

  /** The model if it is there now. */
  async current(): Promise<Ready | null> {
    return this.state === "ready" ? this.#ready : null;
  }

  async loadAdapter(name: string, source: ModelSource): Promise<AdapterInfo> {
    const { model, release } = await this.use();
    try {
      return await this.#add(model, name, source);
    } finally {
      release();
    }
  }

  async unloadAdapter(name: string): Promise<void> {
    const { model, release } = await this.use();
    try {
      await model.unloadAdapter(name);
      this.adapters.delete(name);
    } finally {
      release();
    }
  }

  async close(): Promise<void> {
    this.state = "closed";
    clearTimeout(this.#timer);
    this.#abort.abort();
    await this.#ready.then(({ model }) => model.close()).catch(() => {});
  }

  #begin(): Promise<Ready> {
    this.state = "loading";
    this.progress = null;
    const ready = this.#run();
    // Who waits for it hears of the failure; without anybody it is no defect.
    ready.catch(() => {});
    return ready;
  }

  async #run(): Promise<Ready> {
    let model: Model | undefined;
    try {
      const onProgress = (progress: Progress) => {
        this.progress = progress;
      };
      model = await this.#load({ signal: this.#abort.signal, onProgress });
      if (!isModel(model)) throw wrong("createApp", `models.${this.name}`, "a function that loads a model", model);
      const adapters = new Map(Object.entries(this.#before ? {} : this.#wanted));
      for (const [name, { source }] of this.adapters) adapters.set(name, source);
      for (const [name, source] of adapters) await this.#add(model, name, source);
      const fingerprint = await fingerprintOf(model);
      if (this.state !== "closed") this.state = "ready";
      this.#before = true;
      this.#retryMs = 0;
      this.#rest();
      void model.lost?.then(() => this.#lost());
      return { model, tokens: new TokenTexts(model), fingerprint };
    } catch (error) {
      this.#failure = error;
      // What could not be used takes no memory from the next try.
      if (!this.#once) await Promise.resolve(model?.close?.()).catch(() => {});
      if (this.state !== "closed") this.#fail();
      throw error;
    }
  }

  /** Tries again in a while, whether anybody asks or not: a server that is not ready is asked for nothing. */
  #fail(): void {
    this.state = "failed";
    if (this.#once) return;
    this.#failedAt = performance.now();
    this.#retryMs = Math.min(2 * this.#retryMs || RETRY_MS, MAX_RETRY_MS);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (this.state === "failed") this.#ready = this.#begin();
    }, this.#retryMs);
    (this.#timer as { unref?(): void }).unref?.();
  }

  async #add(model: Model, name: string, source: ModelSource): Promise<AdapterInfo> {
    const info = await model.loadAdapter(source, { name, signal: this.#abort.signal });
    const { always = 0, created = now() } = this.adapters.get(name) ?? {};
    this.adapters.set(name, { source, info, always, created });
    return info;
  }

  /** A model whose worker has died is loaded again, where it can be. */
  #lost(): void {
    if (this.state !== "ready") return;
    if (this.#once) this.state = "failed";
    else this.#ready = this.#begin();
  }

  #release(): void {
    this.#users--;
    this.#rest();
  }

  /** Unloads the model in a while, unless a request comes first. */
  #rest(): void {
    clearTimeout(this.#timer);
    if (this.#users > 0 || this.#idleMs === 0 || this.state !== "ready") return;
    this.#timer = setTimeout(() => void this.#unload(), this.#idleMs);
    // The timer alone keeps no process alive.
    (this.#timer as { unref?(): void }).unref?.();
  }

  async #unload(): Promise<void> {
    if (this.state !== "ready" || this.#users > 0) return;
    this.state = "idle";
    const { model } = await this.#ready;
    await model.close();
  }

  /** Why the model answers nothing now. */
  unavailable(): ApiError {
    const { loaded = 0, total = 0 } = this.progress ?? {};
    if (this.state === "failed" && this.#once)
      return new ApiError(503, `the model ${this.name} has ended, and the server was given no function that loads it`, {
        code: "model_lost",
        headers: { "x-should-retry": "false" },
      });
    if (this.state === "failed")
      return new ApiError(503, `the model ${this.name} could not be loaded`, {
        code: "load_failed",
        headers: retryHeaders(this.#retryMs),
        cause: this.#failure,
      });
    if (this.state === "idle")
      return new ApiError(503, `the model ${this.name} is unloaded while nobody asks it; its next request loads it`, {
        code: "model_unloaded",
        headers: { "x-should-retry": "false" },
      });
    const share = total > 0 ? `, ${Math.floor((100 * loaded) / total)} % of ${total} bytes` : "";
    return new ApiError(503, `the model ${this.name} is being loaded${share}`, {
      code: "model_loading",
      headers: retryHeaders(1000),
    });
  }
}

const now = () => Math.floor(Date.now() / 1000);

/**
 * What tells models apart: a hash of the logits for some ids spread over the vocabulary. It is the same in every runtime and for every
 * build, because the logits are.
 */
export async function fingerprintOf(model: Model): Promise<string> {
  const { vocab, contextLength } = model.info;
  const count = Math.min(16, vocab, contextLength);
  const ids = Array.from({ length: count }, (_, i) => Math.floor((i * vocab) / count));
  const [row] = await model.logits(ids);
  const hash = new Uint8Array(
    await crypto.subtle.digest(
      "SHA-256",
      new Uint8Array(row!.buffer, row!.byteOffset, row!.byteLength) as BufferSource,
    ),
  );
  return `fp_${hex(hash.subarray(0, 8))}`;
}
