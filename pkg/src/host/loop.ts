/** Steps an engine while it has work, and lets the worker read its messages between the steps. */

import type { Recorder } from "../metrics/recorder.ts";
import type { Glue } from "../wasm/load.ts";
import type { Crowding } from "./crowding.ts";
import type { EngineEvent, EngineWork } from "./events.ts";
import type { Timeline } from "./timeline.ts";

type WasmEngine = Glue["Engine"]["prototype"];

export interface Listener {
  onEvent(event: EngineEvent): void;
  /** Some steps are done: a good moment to send what has gathered. */
  onSlice?(): void;
}

/** Pieces gather for so long before they are sent. */
export const SLICE_MS = 8;

/** Time between two reads of the messages while no piece waits to be sent: shorter than a person notices after an abort. */
const POLL_MS = 30;

/** Steps between two reads of the messages: clocks of edge workers stand still until then. */
const MAX_STEPS = 64;

export class EngineLoop {
  readonly engine: WasmEngine;
  readonly #turn: () => Promise<void>;
  readonly #onTrap: (error: unknown) => void;
  readonly #timeline: Timeline | undefined;
  readonly #crowding: Crowding | undefined;
  /** Counts and times what is computed, where somebody asks. */
  recorder: Recorder | null = null;
  /** Makes the steps, where somebody watches them. */
  watched: { step(budget: number): unknown[] } | null = null;
  /** Milliseconds of the batch that is being computed. */
  #ms = 0;
  readonly #listeners = new Map<number, Listener>();
  #running = false;

  /**
   * @param turn resolves once the messages that wait were read
   * @param onTrap is called when the engine cannot continue
   * @param timeline records every batch
   * @param crowding decides how many threads compute
   */
  constructor(
    engine: WasmEngine,
    turn: () => Promise<void>,
    onTrap: (error: unknown) => void,
    timeline?: Timeline,
    crowding?: Crowding,
  ) {
    this.#crowding = crowding;
    this.engine = engine;
    this.#timeline = timeline;
    this.#turn = turn;
    this.#onTrap = onTrap;
  }

  submit(session: number, ids: readonly number[], work: EngineWork, listener: Listener): number {
    const { sampling, ...rest } = work as EngineWork & { sampling?: Float64Array };
    const request = this.engine.submit(session, Uint32Array.from(ids), rest, sampling);
    this.#listeners.set(request, listener);
    this.recorder?.submitted(request);
    this.start();
    return request;
  }

  /** Pauses a request, or lets it continue. */
  pause(request: number, paused: boolean): void {
    this.engine.pause(request, paused);
    if (!paused) this.start();
  }

  /** Steps until the engine has nothing to do. */
  start(): void {
    if (!this.#running) void this.#run();
  }

  /** Lets `work` step the engine itself. A run that waits for its turn would step it in between. @param signal ends the wait for it */
  async alone<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    while (this.#running) {
      await this.#turn();
      signal.throwIfAborted();
    }
    this.#running = true;
    try {
      return await work();
    } finally {
      this.#running = false;
      if (this.engine.busy()) this.start();
    }
  }

  cancel(request: number): void {
    this.#listeners.delete(request);
    this.recorder?.over(request);
    this.engine.cancel(request);
    // Its place may be another's now, also where every other request waits for logits.
    this.start();
  }

  /** Answers a `choose` event, unless the request has ended meanwhile. */
  supply(request: number, logits: Float32Array): void {
    if (!this.#listeners.has(request)) return;
    this.hear(this.engine.supply(request, logits));
    this.start();
  }

  /** Hands over events of steps that the loop has not made. */
  hear(events: (EngineEvent | number)[]): void {
    for (const listener of this.#deliver(events)) listener.onSlice?.();
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      // What the waiting messages submit begins together with the first request.
      await this.#turn();
      while (this.engine.busy()) {
        this.#slice();
        // An edge worker ends its timers with the request that set them: the last one would keep the next request waiting for ever.
        if (this.engine.busy()) await this.#turn();
      }
    } catch (error) {
      this.#onTrap(error);
    } finally {
      this.#running = false;
    }
  }

  #slice(): void {
    const begun = performance.now();
    const heard = new Set<Listener>();
    let steps = 0;
    let passed = 0;
    do {
      const budget = heard.size > 0 ? SLICE_MS : POLL_MS;
      for (const listener of this.#deliver(this.#step(budget - passed))) heard.add(listener);
      passed = performance.now() - begun;
    } while (++steps < MAX_STEPS && passed < SLICE_MS && this.engine.busy());
    for (const listener of heard) listener.onSlice?.();
    this.#timeline?.flush();
  }

  #step(budget: number): (EngineEvent | number)[] {
    this.#timeline?.begin();
    const begun = performance.now();
    const events = (this.watched ?? this.engine).step(budget) as (EngineEvent | number)[];
    this.#ms += performance.now() - begun;
    const served = this.engine.served();
    this.recorder?.step(begun, served, events);
    this.#timeline?.end(served, events, (request) => this.#listeners.has(request));
    if (events.length > 0) {
      // A batch that ends a prompt is like no other.
      const answers = events.every((event) => typeof event === "number");
      this.#crowding?.step(this.#ms, answers ? events.length : 0);
      this.#ms = 0;
    }
    return events;
  }

  /** Delivers events to the listeners of their requests, and returns those listeners. */
  #deliver(events: (EngineEvent | number)[]): Listener[] {
    return events.flatMap((encoded) => {
      const event: EngineEvent = typeof encoded === "number" ? token(encoded) : encoded;
      const listener = this.#listeners.get(event.request);
      if (event.type === "finished" || event.type === "failed") this.#listeners.delete(event.request);
      listener?.onEvent(event);
      return listener ?? [];
    });
  }
}

/** The engine encodes a token's event as one number: the token above 32 bits of the request. */
const token = (encoded: number): EngineEvent => ({
  type: "token",
  request: encoded >>> 0,
  token: Math.floor(encoded / 2 ** 32),
});
