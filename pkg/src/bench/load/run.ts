/** One run of a load test: requests by the clock or by users, at most so many in flight, and every one of them accounted for. */

import type { Counters } from "../report.ts";
import { Sample } from "../sample.ts";
import { arrivals, type LoadPlan, type PlannedRequest, request } from "./plan.ts";
import type { LoadRow, Outcomes } from "./report.ts";
import { latencies } from "./report.ts";

/** What answers requests. */
export interface Target {
  /**
   * Asks, and calls `onPiece` for every piece of the answer; the next one is read when it has settled.
   *
   * @throws {Refused} where the target is too busy
   */
  ask(request: PlannedRequest, signal: AbortSignal, onPiece: () => Promise<void>): Promise<Answered>;
  usage(): Promise<Usage>;
}

/** What the target takes; null where it does not tell. */
export interface Usage {
  /** Bytes that the engine and its process hold. */
  wasmBytes: number | null;
  processBytes: number | null;
  /** Processor time of the target's process; absent where that is this process. */
  cpuMs?: number | null;
}

export interface Answered {
  tokens: number;
  promptTokens: number;
}

export class Refused extends Error {
  /** When to ask again, if the target said so. */
  readonly afterMs: number | null;

  constructor(message: string, afterMs: number | null = null) {
    super(message);
    this.afterMs = afterMs;
  }
}

export interface RunOptions {
  plan: LoadPlan;
  /** The most requests in flight; null for any number. */
  size: number | null;
  percentiles: readonly number[];
  counters?(): Counters | null;
  signal?: AbortSignal;
  clock?: Clock;
}

/** Milliseconds that a slow reader pauses after a piece, and a refused user before the next request. */
const SLOW_MS = 20;
const REFUSED_MS = 100;
/** Seconds after the last request in which answers may still end. */
const DRAIN = 60;
/** Requests that wait on this side at most. More are given up, and counted. */
const MAX_WAITING = 1 << 16;
/** Different errors that are told. */
const MAX_ERRORS = 20;

/** Time, as a test may replace it. */
export interface Clock {
  /** Milliseconds. */
  now(): number;
  /** Resolves after so long, or as soon as the signal aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

const realTime: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal?.addEventListener("abort", wake);
    }),
};

export async function run(target: Target, options: RunOptions): Promise<LoadRow> {
  const { plan, size, percentiles, counters, signal } = options;
  const running = new Running(target, options);
  const before = counters?.() ?? null;
  const [used, begun] = [await target.usage(), performance.now()];
  const seconds = await running.go();
  const after = before && counters!();
  signal?.throwIfAborted();
  const { outcomes, errors, tokens, promptTokens } = running;
  const [ended, ms] = [await target.usage(), performance.now() - begun];
  const own = after && (after.cpuMs - before.cpuMs) / (after.atMs - before.atMs);
  return {
    size,
    offeredPerSecond: plan.rps ?? null,
    users: plan.users ?? null,
    seconds,
    planned: running.planned,
    ...outcomes,
    errors: Object.fromEntries(errors),
    servedPerSecond: outcomes.whole / seconds,
    tokensPerSecond: tokens / seconds,
    promptTokens,
    tokens,
    firstMs: latencies(running.first, percentiles),
    gapMs: latencies(running.gaps, percentiles),
    wholeMs: latencies(running.whole, percentiles),
    lateMs: latencies(running.late, percentiles),
    memory: { before: memoryOf(used), after: memoryOf(ended) },
    cpuCores: ended.cpuMs === undefined ? own : coresOf(used.cpuMs, ended.cpuMs, ms),
    clientCores: ended.cpuMs === undefined ? null : own,
  };
}

const memoryOf = ({ wasmBytes, processBytes }: Usage) => ({ wasmBytes, processBytes });

/** A process that began anew meanwhile has less time than before. */
const coresOf = (before: number | null | undefined, after: number | null, ms: number) =>
  before == null || after === null || after < before ? null : (after - before) / ms;

class Running {
  readonly outcomes: Outcomes = { whole: 0, aborted: 0, refused: 0, failed: 0, unfinished: 0, dropped: 0 };
  readonly errors = new Map<string, number>();
  readonly first: Sample;
  readonly gaps: Sample;
  readonly whole: Sample;
  /** How late this side was with a request of the open loop. */
  readonly late: Sample;
  planned = 0;
  tokens = 0;
  promptTokens = 0;
  readonly #target: Target;
  readonly #plan: LoadPlan;
  readonly #waiting: (() => void)[] = [];
  readonly #limit: number;
  #inFlight = 0;
  /** Ends what is still running when its time is over. */
  readonly #over = new AbortController();
  readonly #clock: Clock;
  readonly #start: number;

  constructor(target: Target, { plan, size, signal, clock = realTime }: RunOptions) {
    [this.#target, this.#plan, this.#clock] = [target, plan, clock];
    this.#start = clock.now();
    this.#limit = size ?? Infinity;
    [this.first, this.gaps, this.whole, this.late] = [1, 2, 3, 4].map((n) => new Sample(plan.seed + n)) as [
      Sample,
      Sample,
      Sample,
      Sample,
    ];
    signal?.addEventListener("abort", () => this.#over.abort(signal.reason), { once: true });
  }

  /** @returns the seconds from the beginning to the last answer */
  async go(): Promise<number> {
    const { rps, users = 1 } = this.#plan;
    const all = rps ? this.#openLoop(rps) : this.#closedLoop(users);
    const done = new AbortController();
    const late = this.#clock.sleep(1000 * (this.#plan.duration + DRAIN), done.signal);
    void late.then(() => done.signal.aborted || this.#over.abort());
    try {
      await all;
    } finally {
      done.abort();
    }
    return (this.#clock.now() - this.#start) / 1000;
  }

  async #openLoop(rps: number): Promise<void> {
    const asked = new Set<Promise<void>>();
    for (const at of arrivals({ ...this.#plan, rps })) {
      const scheduled = this.#start + 1000 * at;
      const left = () => scheduled - this.#clock.now();
      while (left() > 0 && !this.#over.signal.aborted) await this.#clock.sleep(left(), this.#over.signal);
      if (this.#over.signal.aborted) break;
      this.late.push(this.#clock.now() - scheduled);
      const one = request(this.#plan, this.planned++);
      if (this.#waiting.length >= MAX_WAITING) {
        this.outcomes.dropped++;
        continue;
      }
      const done = this.#ask(one, scheduled).then(() => void asked.delete(done));
      asked.add(done);
    }
    await Promise.all(asked);
  }

  async #closedLoop(users: number): Promise<void> {
    const until = this.#start + 1000 * this.#plan.duration;
    const user = async () => {
      while (this.#clock.now() < until && !this.#over.signal.aborted) {
        const afterMs = await this.#ask(request(this.#plan, this.planned++), this.#clock.now());
        if (afterMs !== null) await this.#clock.sleep(Math.min(afterMs, Math.max(0, until - this.#clock.now())));
      }
    };
    await Promise.all(Array.from({ length: users }, user));
  }

  /**
   * One request from its turn to its end.
   *
   * @param scheduled when it was to begin: what it waits for here counts as the target's time
   * @returns milliseconds after which to ask again where it was refused, else null
   */
  async #ask(planned: PlannedRequest, scheduled: number): Promise<number | null> {
    await this.#take();
    const aborts = new AbortController();
    const signal = AbortSignal.any([this.#over.signal, aborts.signal]);
    let pieces = 0;
    let last = 0;
    const onPiece = async () => {
      const now = this.#clock.now();
      if (++pieces === 1) this.first.push(now - scheduled);
      else if (!planned.slow) this.gaps.push(now - last);
      if (pieces === planned.abortAfter) aborts.abort();
      if (planned.slow) await this.#clock.sleep(SLOW_MS);
      last = planned.slow ? this.#clock.now() : now;
    };
    try {
      signal.throwIfAborted();
      const { tokens, promptTokens } = await this.#target.ask(planned, signal, onPiece);
      this.tokens += tokens;
      this.promptTokens += promptTokens;
      // A client that had enough may have had all.
      this.outcomes[aborts.signal.aborted ? "aborted" : "whole"]++;
      if (!planned.slow && !aborts.signal.aborted) this.whole.push(this.#clock.now() - scheduled);
      return null;
    } catch (error) {
      // As many pieces as came were made.
      this.tokens += pieces;
      return this.#ended(error, aborts.signal.aborted);
    } finally {
      this.#release();
    }
  }

  #ended(error: unknown, aborted: boolean): number | null {
    if (aborted) this.outcomes.aborted++;
    else if (this.#over.signal.aborted) this.outcomes.unfinished++;
    else if (error instanceof Refused) {
      this.outcomes.refused++;
      return error.afterMs ?? REFUSED_MS;
    } else {
      this.outcomes.failed++;
      const message = error instanceof Error ? error.message : String(error);
      const key = this.errors.has(message) || this.errors.size < MAX_ERRORS ? message : "others";
      this.errors.set(key, (this.errors.get(key) ?? 0) + 1);
      // A target that fails at once is not asked without a pause.
      return REFUSED_MS;
    }
    return null;
  }

  /** Waits for a place in flight; who came first goes first. */
  #take(): Promise<void> | undefined {
    if (this.#inFlight < this.#limit) {
      this.#inFlight++;
      return undefined;
    }
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#inFlight--;
  }
}
