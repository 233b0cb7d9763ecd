/** Steps an engine while it has work, and lets the worker read its messages in between. */

import type { Glue } from "../wasm/load.ts";
import type { EngineEvent, EngineWork } from "./events.ts";
import type { Timeline } from "./timeline.ts";

type WasmEngine = Glue["Engine"]["prototype"];

export interface Listener {
  onEvent(event: EngineEvent): void;
  /** After some steps: a good moment to send what has gathered. */
  onPause?(): void;
}

/** Milliseconds for which pieces gather before they are sent. */
export const SLICE = 8;

/** Milliseconds between two looks at the messages where no piece waits: below what a person or an abort would notice. */
const LOOK = 30;

/** Steps between two looks: clocks of edge workers stand still until a look. */
const MOST_STEPS = 64;

export class EngineLoop {
  readonly engine: WasmEngine;
  readonly #turn: () => Promise<void>;
  readonly #onTrap: (error: unknown) => void;
  readonly #timeline: Timeline | undefined;
  readonly #listeners = new Map<number, Listener>();
  #running = false;

  /**
   * `turn` resolves once waiting messages were read; `onTrap` hears of an engine that cannot go on; `timeline` of every batch.
   */
  constructor(engine: WasmEngine, turn: () => Promise<void>, onTrap: (error: unknown) => void, timeline?: Timeline) {
    this.engine = engine;
    this.#timeline = timeline;
    this.#turn = turn;
    this.#onTrap = onTrap;
  }

  submit(session: number, ids: readonly number[], work: EngineWork, listener: Listener): number {
    const { sampling, ...rest } = work as EngineWork & { sampling?: Float64Array };
    const request = this.engine.submit(session, Uint32Array.from(ids), rest, sampling);
    this.#listeners.set(request, listener);
    this.#go();
    return request;
  }

  /** Lets a request wait for its reader, or go on. */
  pause(request: number, paused: boolean): void {
    this.engine.pause(request, paused);
    if (!paused) this.#go();
  }

  #go(): void {
    if (!this.#running) void this.#run();
  }

  cancel(request: number): void {
    this.#listeners.delete(request);
    this.engine.cancel(request);
  }

  /** Answers a `choose` event, unless the request has ended meanwhile. */
  supply(request: number, logits: Float32Array): void {
    if (!this.#listeners.has(request)) return;
    for (const listener of this.#hand(this.engine.supply(request, logits))) listener.onPause?.();
    this.#go();
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      // What was submitted together begins together.
      await this.#turn();
      while (this.engine.busy()) {
        this.#slice();
        await this.#turn();
      }
    } catch (error) {
      this.#onTrap(error);
    } finally {
      this.#running = false;
    }
  }

  #slice(): void {
    const begun = performance.now();
    const spoken = new Set<Listener>();
    let steps = 0;
    let passed = 0;
    do {
      const budget = spoken.size > 0 ? SLICE : LOOK;
      for (const listener of this.#hand(this.#step(budget - passed))) spoken.add(listener);
      passed = performance.now() - begun;
    } while (++steps < MOST_STEPS && passed < SLICE && this.engine.busy());
    for (const listener of spoken) listener.onPause?.();
    this.#timeline?.flush();
  }

  #step(budget: number): (EngineEvent | number)[] {
    this.#timeline?.begin();
    const events = this.engine.step(budget) as (EngineEvent | number)[];
    this.#timeline?.end(this.engine.served(), events);
    return events;
  }

  /** Hands events to those they concern, and tells who they are. */
  #hand(events: (EngineEvent | number)[]): Listener[] {
    return events.flatMap((told) => {
      const event: EngineEvent = typeof told === "number" ? token(told) : told;
      const listener = this.#listeners.get(event.request);
      if (event.type === "finished" || event.type === "failed") this.#listeners.delete(event.request);
      listener?.onEvent(event);
      return listener ?? [];
    });
  }
}

/** A token, as the engine tells it. */
const token = (told: number): EngineEvent => ({
  type: "token",
  request: told >>> 0,
  token: Math.floor(told / 2 ** 32),
});
