/** The runs of a benchmark on a loaded model: what was measured, before it is worked out. */

import {
  type LoadedModel,
  loadInto,
  type Measured,
  type Outside,
  type Traced,
  UnstableEngine,
} from "../api/unstable.ts";
import type { LoadOptions, ModelInfo, ModelSource } from "../types/index.ts";
import { randomBits } from "./blocks.ts";
import type { Counted } from "./counters.ts";
import { Course } from "./over_time.ts";
import type { BenchSettings, Counters, OverTime } from "./report.ts";
import type { TimedRun } from "./trace.ts";

/** Tokens of a prompt that is traced: fewer than the smallest chunk, so that the prompt is one step. */
const TRACED = 16;
/** Streams a thread with which matrices are read; runs with each alternate. */
const STREAMS = [1, 8];
/** Runs over all matrices and over all operations: so many, or more until they have taken so many milliseconds. */
const LEAST = 6;
const TRACE_MS = 400;
const MOST = 400;
/** Of a long run, one piece in so many is an answer through the public API, so that its memory is watched too. */
const EVERY = 8;

/** What the runtime tells of the process while it works. */
export interface Watched {
  /** The process's peak of memory so far; null where the runtime does not tell, as with the others. */
  peakRssBytes(): number | null;
  rssBytes?(): number | null;
  counters?(): Counters | null;
}

/** What is measured besides the plain runs. */
export interface Extras {
  profile: boolean;
  trace: boolean;
  /** Of a long run behind the others; 0 for none. */
  seconds: number;
}

export interface Measurements {
  runs: Measured[];
  counted: Counted[];
  profiled: Measured[] | null;
  traced: TraceNumbers | null;
  /** Runs through the public API; null with several conversations or tokens before the prompt. */
  ends: EndToEnd[] | null;
  overTime: OverTime | null;
  peakRssBytes: number | null;
}

export interface TraceNumbers {
  tokens: number;
  numbers: Traced;
  times: TimedRun[];
  /** Runs whose operations were timed one by one. */
  each: Measured[];
}

export interface EndToEnd {
  firstMs: number;
  restMs: number;
}

interface Ids {
  past: number[][];
  prompts: number[][];
  decode: number;
}

/** A model that is measured, alone in an engine. */
export class Bench {
  readonly #engine: UnstableEngine;
  readonly #model: LoadedModel;
  readonly #environment: Watched;
  readonly #note: (note: string) => void;
  readonly #signal: AbortSignal | undefined;
  readonly loadMs: number;
  readonly #random = randomBits(1);

  private constructor(
    engine: UnstableEngine,
    model: LoadedModel,
    loadMs: number,
    { environment, note, signal }: { environment: Watched; note: (note: string) => void; signal?: AbortSignal },
  ) {
    [this.#engine, this.#model, this.loadMs] = [engine, model, loadMs];
    [this.#environment, this.#note, this.#signal] = [environment, note, signal];
  }

  get info(): ModelInfo {
    return this.#model.info;
  }

  /** Loads a model with room for all of these settings, calls `work` with it and closes it. */
  static async with<T>(
    outside: Outside,
    environment: Watched,
    { source, load, note }: { source: ModelSource; load: LoadOptions; note: (note: string) => void },
    points: readonly BenchSettings[],
    work: (bench: Bench) => Promise<T>,
  ): Promise<T> {
    // All conversations share one cache of the context's length, which is counted in blocks.
    const positions = points.map(
      ({ batch, ctx, prompt, decode }) => batch * 32 * Math.ceil((ctx + prompt + decode + 1) / 32),
    );
    const room = { contextLength: Math.max(...positions), maxSequences: Math.max(...points.map(({ batch }) => batch)) };
    note("loading");
    const engine = new UnstableEngine(outside);
    try {
      const start = performance.now();
      const model = await loadInto(engine, outside, source, { ...room, prefixReuse: false, ...load });
      const { signal } = load;
      const watched = { environment, note, ...(signal ? { signal } : {}) };
      return await work(new Bench(engine, model, performance.now() - start, watched));
    } finally {
      await engine.close();
    }
  }

  async measure(settings: BenchSettings, { profile, trace, seconds }: Extras): Promise<Measurements> {
    const { prompt, decode, batch, ctx, warmup, repeat } = settings;
    // Random ids, so that no two conversations share a beginning.
    const ids = (count: number) => Array.from({ length: count }, () => this.#random() % this.info.vocab);
    const lists = (count: number) => Array.from({ length: count > 0 ? batch : 0 }, () => ids(count));
    const run = { past: lists(ctx), prompts: lists(prompt), decode };
    const counted: Counted[] = [];

    await times(warmup, (i) => this.#run(run, `warming up ${i + 1} of ${warmup}`));
    const runs = await times(repeat, (i) => this.#run(run, `run ${i + 1} of ${repeat}`, counted));
    const first = run.prompts[0]!;
    const traced = trace ? await this.#trace(run) : null;
    const measured = (i: number) => this.#profiled(run, `profile ${i + 1} of ${repeat}`);
    const profiled = profile ? await times(repeat, measured) : null;
    const alone = batch === 1 && ctx === 0;
    this.#note("end to end");
    const ends = alone ? await times(warmup + repeat, () => this.#endToEnd(first, decode)) : null;
    const overTime = seconds > 0 ? await this.#overTime(run, alone, seconds) : null;
    const peakRssBytes = this.#environment.peakRssBytes();
    return { runs, counted, profiled, traced, ends: ends?.slice(warmup) ?? null, overTime, peakRssBytes };
  }

  async #run(ids: Ids, note: string, counted?: Counted[]): Promise<Measured> {
    this.#note(note);
    const read = () => this.#environment.counters?.() ?? null;
    let before: Counters | null = null;
    const onDecode = () => {
      before = read();
    };
    const run = await this.#engine.measure({ ...ids, profile: false }, this.#signal, counted && onDecode);
    const after = counted && before && read();
    if (before && after) counted.push({ before, after, tokens: ids.prompts.length * ids.decode });
    return run;
  }

  #profiled(ids: Ids, note: string): Promise<Measured> {
    this.#note(note);
    return this.#engine.measure({ ...ids, profile: true }, this.#signal);
  }

  async #trace(run: Ids): Promise<TraceNumbers> {
    const ids = run.prompts[0]!.slice(0, TRACED);
    this.#note("trace");
    const numbers = await this.#engine.trace(ids, false, this.#signal);
    const times = await repeated(async (i) => {
      const streams = STREAMS[i % STREAMS.length]!;
      return { streams, numbers: await this.#engine.times(streams, this.#signal) };
    });
    // Many tokens would make millions of numbers.
    const one = { past: [], prompts: [ids], decode: Math.min(TRACED, run.decode) };
    const each = await repeated(() => this.#engine.measure({ ...one, profile: "each" }, this.#signal));
    return { tokens: ids.length, numbers, times, each };
  }

  async #overTime(run: Ids, alone: boolean, seconds: number): Promise<OverTime> {
    const course = new Course(seconds);
    const start = performance.now();
    const elapsed = () => (performance.now() - start) / 1000;
    for (let i = 0; elapsed() < seconds; i++) {
      const left = Math.ceil(seconds - elapsed());
      if (alone && i % EVERY === EVERY - 1) await this.#endToEnd(run.prompts[0]!, run.decode);
      const { decode, memoryBytes } = await this.#run(run, `${left} s left`);
      course.add({
        at: elapsed(),
        seconds: decode.ms / 1000,
        tokens: run.prompts.length * run.decode,
        wasmBytes: memoryBytes,
        processBytes: this.#environment.rssBytes?.() ?? null,
      });
    }
    return course.report();
  }

  async #endToEnd(ids: number[], decode: number): Promise<EndToEnd> {
    const start = performance.now();
    const signal = this.#signal;
    const options = { temperature: 0, maxTokens: decode + 1, ignoreEos: true, ...(signal ? { signal } : {}) };
    const generation = this.#model.generate(ids, options);
    let first = 0;
    for await (const _ of generation) first ||= performance.now();
    const { timings } = await generation.finished;
    // Pieces come several at a time: the first piece arrives later than the first token is made.
    return { firstMs: first - start, restMs: performance.now() - start - timings.ttftMs };
  }
}

/** Runs often enough for coarse clocks and for machines that do something else at times. */
async function repeated<T>(work: (i: number) => Promise<T>): Promise<T[]> {
  const found: T[] = [];
  const start = performance.now();
  while (found.length < LEAST || (performance.now() - start < TRACE_MS && found.length < MOST)) {
    found.push(await work(found.length));
  }
  return found;
}

async function times<T>(count: number, work: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let i = 0; i < count; i++) results.push(await work(i));
  return results;
}
