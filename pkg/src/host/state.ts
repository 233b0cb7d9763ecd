/** What the verbs of one host share: the loaded model, its sessions and the requests under way. */

import type { Constrainer } from "../constrain/constraint.ts";
import type { Recorder } from "../metrics/recorder.ts";
import type { Monitor } from "../signals/monitor.ts";
import { EngineError } from "../types/errors.ts";
import type { ThreadsOwner } from "../wasm/threads.ts";
import type { Adapters } from "./adapters.ts";
import type { Loaded } from "./context.ts";
import type { Crowding } from "./crowding.ts";
import type { EngineLoop } from "./loop.ts";
import type { Platform } from "./platform.ts";
import type { Timeline } from "./timeline.ts";

/** A loaded model with what runs requests on it. */
export interface HostedModel extends Loaded {
  loop: EngineLoop;
  crowding: Crowding;
  adapters: Adapters;
}

export class HostState {
  readonly platform: Platform;
  readonly timeline: Timeline;
  /** The engine cannot continue: every call that is pending, and every later one, fails with this error. */
  readonly onFatal: (error: unknown) => void;
  /** The owner's end watches the engine's threads. */
  readonly threads: ThreadsOwner;
  /** What was counted and timed so far; null in a page that nobody has asked yet. */
  recorder: Recorder | null = null;
  /** Engine sessions by the owner's numbers. */
  readonly sessions = new Map<number, number>();
  /** What ends the request under way on a session, by the engine's session. */
  readonly requests = new Map<number, (error: unknown) => void>();
  /** Logits that identify the model, once a saved session has asked for them. */
  fingerprint: Float32Array | null = null;
  /** The library for response formats, once a generation has asked for one. */
  constrainer: Constrainer | null = null;
  /** Watches the model's health, where the load asked for it. */
  monitor: Monitor | null = null;
  /** The warm-up behind the load, until a call ends it. */
  idle: { stop(): void } | null = null;
  #model: HostedModel | null = null;

  constructor(platform: Platform, timeline: Timeline, { onFatal, threads }: Pick<HostState, "onFatal" | "threads">) {
    this.platform = platform;
    this.timeline = timeline;
    this.onFatal = onFatal;
    this.threads = threads;
  }

  /** @throws {EngineError} `Closed` before a model is loaded */
  get model(): HostedModel {
    if (!this.#model) throw new EngineError("Closed", "no model is loaded");
    return this.#model;
  }

  set model(model: HostedModel) {
    this.#model = model;
  }

  /** Counts and times from now on, if it has not before. */
  async count(): Promise<Recorder> {
    const { Recorder } = await this.platform.signals();
    this.recorder ??= new Recorder();
    this.model.loop.recorder = this.recorder;
    return this.recorder;
  }

  /** The engine's session for the owner's number; opened at its first use. */
  session(number: number): number {
    const { engine } = this.model;
    const known = this.sessions.get(number);
    if (known !== undefined) return known;
    const id = engine.open();
    this.sessions.set(number, id);
    return id;
  }

  /** The ids that a session holds. */
  tokens(session: number): number[] {
    return [...this.model.engine.tokens(session)];
  }
}
