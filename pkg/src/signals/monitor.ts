/**
 * Watches a model while it runs, within a share of a core. Some steps are computed operation by operation, and between two operations
 * what the last one has left in the memory is looked at. A step gives the same bits either way.
 */

import { logSum } from "../metrics/log_sum.ts";
import type { Recorder } from "../metrics/recorder.ts";
import type { Health, HealthThresholds } from "../types/index.ts";
import { deviation, entropy, type HeadRows, placesOf, readHead } from "./kv.ts";
import { assess, type Measure } from "./thresholds.ts";
import { Tiles } from "./tiles.ts";

/** As much of the engine as is watched. */
export interface Watched {
  step(budget: number): unknown[];
  served(): Uint32Array;
  watch(what: number): Float64Array;
  watchLogits(on: boolean): void;
  busy(): boolean;
}

export interface Surroundings {
  engine: Watched;
  memory: WebAssembly.Memory;
  /** The names of operations, as the engine numbers them. */
  operations: readonly string[];
  recorder: Recorder;
  kvCacheType: string;
  turn(): Promise<void>;
}

/** In the order of the engine's precisions. */
const INT8 = 0;
/** Rows from which on a channel that was always zero counts, and after which the count begins anew. */
const [MIN_ROWS, MAX_ROWS] = [64, 4096];
/** Positions of a block that must be filled for its entropy to count. */
const MIN_POSITIONS = 16;
/** Layers of which one step looks at the cache: that takes little beside the step. */
const LAYERS = 4;
/** The share that the latest block has in the mean of a layer. */
const LATEST = 0.25;
/**
 * Tokens, int8 activations and codes of the cache at which their sums are halved: a model that falls ill after a week is seen as soon as one
 * that just began.
 */
const [MAX_TOKENS, MAX_ACTIVATIONS, MAX_CODES] = [512, 2 ** 28, 2 ** 22];
/** The part of the share that steps may be looked at with; weights are compared with what that leaves. */
const STEPS = 0.5;
/** Milliseconds between two looks at the weights. */
const COMPARE_MS = 500;
/** What one look at the weights takes at most, in milliseconds. */
const LOOK_MS = 10;

interface Channels {
  seen: Uint8Array;
  rows: number;
  /** The share of zeros in the last full count. */
  last: number | null;
}

export class Monitor {
  readonly #around: Surroundings;
  readonly #share: number;
  readonly #thresholds: HealthThresholds;
  readonly #tiles: Tiles;
  /** When watching began, later by the time that it has rested; and when it came to rest, where it does. */
  #started = performance.now();
  #rests: number | null = null;
  /** Milliseconds that were computed, and of looking at steps and at weights. */
  #computed = 0;
  #looked = 0;
  #compared = 0;
  /** Whether the batch under way is looked at, and the logits that it left. */
  #looking = false;
  #logits: { address: number; rows: number; vocab: number } | null = null;
  #steps = 0;
  /** Looks at the cache. */
  #looks = 0;
  readonly #channels = new Map<string, Channels>();
  /** By layer; undefined where none was seen. */
  readonly #layers: ({ keys: number; values: number } | undefined)[] = [];
  /** Layers that attend; 0 before the first look. */
  #attending = 0;
  /** What fixes the bins of each head: the deviations in its first look. */
  readonly #scales = new Map<string, { keys: number; values: number }>();
  readonly #int8 = { peaks: 0, values: 0 };
  readonly #kv = { limit: 0, codes: 0 };
  readonly #written = { nll: 0, tokens: 0 };
  #nonFinite = 0;

  private constructor(around: Surroundings, share: number, thresholds: HealthThresholds) {
    this.#around = around;
    this.#share = share;
    this.#thresholds = thresholds;
    this.#tiles = new Tiles(around.memory, around.engine.watch(0));
  }

  /** Takes the hashes of all weights, and compares them from then on. */
  static async start(
    around: Surroundings,
    { share = 0.004, thresholds = {} }: { share?: number | undefined; thresholds?: HealthThresholds | undefined },
  ): Promise<Monitor> {
    const monitor = new Monitor(around, share, thresholds);
    await monitor.#tiles.take(around.turn);
    void monitor.#compareNowAndThen();
    return monitor;
  }

  /** A step of the engine. */
  step(budget: number): unknown[] {
    const { engine } = this.#around;
    const begun = performance.now();
    // With a whole core every step is looked at.
    this.#looking ||= this.#share >= 1 || this.#looked <= STEPS * this.#share * this.#computed;
    if (!this.#looking) {
      const events = engine.step(budget);
      this.#computed += performance.now() - begun;
      return events;
    }
    engine.watchLogits(true);
    const events: unknown[] = [];
    let looked = 0;
    for (let now = begun; ; ) {
      events.push(...engine.step(0));
      const after = performance.now();
      const done = engine.served().length > 0;
      if (done) this.#end(events);
      else this.#look();
      now = performance.now();
      looked += now - after;
      if (done) {
        this.#looking = false;
        engine.watchLogits(false);
      }
      if (done || now - begun >= budget || !engine.busy()) {
        this.#looked += looked;
        this.#computed += now - begun - looked;
        return events;
      }
    }
  }

  /** Lets watching rest, or go on; returns what makes the steps then. */
  watch(on: boolean): this | null {
    const now = performance.now();
    if (on) this.#started += now - (this.#rests ?? now);
    this.#rests = on ? null : (this.#rests ?? now);
    // A step that was begun may end without being looked at.
    this.#looking = false;
    this.#around.engine.watchLogits(false);
    this.#logits = null;
    return on ? this : null;
  }

  /** Compares all weights now. */
  compareAll(): Promise<void> {
    return this.#tiles.compareAll(this.#around.turn);
  }

  damage({ codes = 0, nan = false }: { codes?: number; nan?: boolean }): void {
    this.#tiles.flip(codes);
    if (nan) this.#tiles.spoil();
  }

  get health(): Health {
    const { recorder, kvCacheType } = this.#around;
    const layers = Array.from(this.#layers, (layer) => layer ?? null);
    const least = layers.flatMap((layer) => (layer ? [Math.min(layer.keys, layer.values)] : []));
    const zeros = [...this.#channels.values()].flatMap((one) => shareOf(one) ?? []);
    const measures = {
      ...always(recorder, this.#nonFinite),
      weights: {
        value: this.#tiles.share,
        from: { tiles: this.#tiles.tiles, changed: this.#tiles.changed, rounds: this.#tiles.rounds },
        places: this.#tiles.shown,
      },
      kvEntropy: {
        value: least.length > 0 ? Math.min(...least) : null,
        from: { layers: least.length, of: this.#attending },
        whole: least.length === this.#attending,
        layers,
      },
      zeroChannels: {
        value: zeros.length > 0 ? zeros.reduce((sum, share) => sum + share, 0) / zeros.length : null,
        from: { places: zeros.length, worst: Math.max(0, ...zeros) },
      },
      int8Saturation: ratio(this.#int8.peaks, this.#int8.values),
      kvSaturation: ratio(this.#kv.limit, this.#kv.codes),
      perplexity: {
        value: this.#written.tokens > 0 ? Math.exp(this.#written.nll / this.#written.tokens) : null,
        from: { tokens: Math.round(this.#written.tokens) },
      },
    } satisfies Record<string, Measure>;
    const share = (this.#looked + this.#compared) / Math.max(1, (this.#rests ?? performance.now()) - this.#started);
    return assess(measures, this.#thresholds, { kvCacheType, watched: this.#rests === null, share });
  }

  #look(): void {
    const { engine, operations, memory } = this.#around;
    const numbers = engine.watch(2);
    if (numbers.length === 0) return;
    const [operation, layer, rows, stride, width, address] = numbers as unknown as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    for (let at = 6; at < numbers.length; at += 5) {
      const [precision, values, peaks, input, output] = numbers.subarray(at) as unknown as number[];
      this.#nonFinite += input! + output!;
      if (precision !== INT8) continue;
      this.#int8.peaks += peaks!;
      this.#int8.values += values!;
    }
    if (this.#int8.values >= MAX_ACTIVATIONS) halve(this.#int8);
    const name = operations[operation]!;
    if (name === "head") this.#logits = { address, rows, vocab: width };
    else if (name === "output" || name === "down") {
      const seen = new Float32Array(memory.buffer, address, (rows - 1) * stride + width);
      count(this.#channelsOf(`${name} ${layer}`, width), seen, { rows, stride, width });
    }
  }

  #channelsOf(key: string, width: number): Channels {
    const found = this.#channels.get(key) ?? { seen: new Uint8Array(width), rows: 0, last: null };
    this.#channels.set(key, found);
    return found;
  }

  /** A batch that was looked at is over. */
  #end(events: readonly unknown[]): void {
    this.#steps++;
    this.#weigh(events);
    this.#lookAtCache();
  }

  /** How likely the tokens were that were chosen, where there is one for each row of logits. */
  #weigh(events: readonly unknown[]): void {
    const tokens = events.flatMap((event) => (typeof event === "number" ? [Math.floor(event / 2 ** 32)] : []));
    const found = this.#logits;
    this.#logits = null;
    if (!found || found.rows !== tokens.length) return;
    const { address, rows, vocab } = found;
    const all = new Float32Array(this.#around.memory.buffer, address, rows * vocab);
    for (const [i, token] of tokens.entries()) {
      const logits = all.subarray(i * vocab, (i + 1) * vocab);
      const nll = logSum(logits) - logits[token]!;
      if (!Number.isFinite(nll)) continue;
      this.#written.nll += nll;
      this.#written.tokens++;
      if (this.#written.tokens >= MAX_TOKENS) halve(this.#written);
    }
  }

  /** One block of one conversation, of one head in some layers: others each time. */
  #lookAtCache(): void {
    const { engine, memory } = this.#around;
    const places = placesOf(engine.watch(1));
    const { layers, heads, dim, conversations } = places;
    this.#attending = layers;
    const long = conversations.filter(({ positions, blocks }) => positions >= MIN_POSITIONS && blocks.length > 0);
    if (long.length === 0 || layers === 0) return;
    const { positions, blocks } = long[this.#steps % long.length]!;
    const whole = Math.max(1, Math.floor((positions + 32 - MIN_POSITIONS) / 32));
    const index = this.#steps % Math.min(whole, blocks.length);
    const filled = Math.min(32, positions - 32 * index);
    for (let i = 0; i < Math.min(LAYERS, layers); i++) {
      const layer = this.#looks % layers;
      const head = Math.floor(this.#looks++ / layers) % heads;
      this.#noteHead([layer, head], readHead(memory.buffer, places, blocks[index]!, [layer, head], filled), dim);
    }
  }

  #noteHead([layer, head]: readonly [number, number], found: HeadRows, dim: number): void {
    this.#kv.limit += found.limit;
    this.#kv.codes += found.codes;
    if (this.#kv.codes >= MAX_CODES) halve(this.#kv);
    for (const part of [found.keys, found.values])
      for (const value of part) if (!Number.isFinite(value)) this.#nonFinite++;
    const scales = this.#scalesOf(`${layer} ${head}`, found);
    const now = {
      keys: entropy(found.keys, dim, scales.keys),
      values: entropy(found.values, dim, scales.values),
    };
    const before = this.#layers[layer];
    const mean = (one: number, other: number) => LATEST * one + (1 - LATEST) * other;
    this.#layers[layer] = before ? { keys: mean(now.keys, before.keys), values: mean(now.values, before.values) } : now;
  }

  /** Bins stay where a head's first look has put them, so that a cache that loses its spread falls into few of them. */
  #scalesOf(key: string, { keys, values }: { keys: Float32Array; values: Float32Array }) {
    const known = this.#scales.get(key);
    if (known) return known;
    const found = { keys: deviation(keys), values: deviation(values) };
    if (found.keys > 0 && found.values > 0) this.#scales.set(key, found);
    return found;
  }

  /** Compares tiles for as long as the share of the time since the load allows, and what looks at steps have left of it. */
  #compare(): void {
    if (this.#rests !== null) return;
    const begun = performance.now();
    const allowed = this.#share * (begun - this.#started) - this.#looked - this.#compared;
    if (allowed <= 0) return;
    this.#tiles.compare(Math.min(LOOK_MS, allowed));
    this.#compared += performance.now() - begun;
  }

  /** Once the engine has ended its turns never come, so that nothing holds its memory then. */
  async #compareNowAndThen(): Promise<void> {
    for (;;) {
      await new Promise<void>((resolve) => {
        const timer: { unref?(): void } | number = setTimeout(resolve, COMPARE_MS);
        if (typeof timer === "object") timer.unref?.();
      });
      await this.#around.turn();
      this.#compare();
    }
  }
}

/** What is known of a model that nobody watches. */
export function always(recorder: Recorder, seen = 0): { repetition: Measure; nonFinite: Measure } {
  const { share, tokens, answers } = recorder.repetition;
  const failed = recorder.statistics.errors.NonFinite ?? 0;
  return {
    repetition: { value: answers > 0 ? share : null, from: { answers, tokens } },
    nonFinite: { value: seen + failed, from: { seen, failed } },
  };
}

export function unwatched(recorder: Recorder, kvCacheType: string): Health {
  const none: Measure = { value: null, from: {} };
  const measures = {
    weights: none,
    kvEntropy: none,
    zeroChannels: none,
    int8Saturation: none,
    kvSaturation: none,
    perplexity: none,
    ...always(recorder),
  };
  return assess(measures, {}, { kvCacheType, watched: false, share: 0 });
}

const ratio = (part: number, all: number): Measure => ({
  value: all > 0 ? part / all : null,
  from: { part: Math.round(part), all: Math.round(all) },
});

/** Sums of the same things, so that their ratios stay. */
function halve(sums: Record<string, number>): void {
  for (const key of Object.keys(sums)) sums[key]! /= 2;
}

function shareOf({ seen, rows, last }: Channels): number | null {
  if (rows < MIN_ROWS) return last;
  return zeroShare(seen);
}

const zeroShare = (seen: Uint8Array) => seen.reduce((zeros, one) => zeros + (one === 0 ? 1 : 0), 0) / seen.length;

function count(
  channels: Channels,
  values: Float32Array,
  { rows, stride, width }: { rows: number; stride: number; width: number },
): void {
  const { seen } = channels;
  for (let row = 0; row < rows; row++) {
    const from = row * stride;
    for (let i = 0; i < width; i++) if (values[from + i] !== 0) seen[i] = 1;
  }
  channels.rows += rows;
  if (channels.rows < MAX_ROWS) return;
  channels.last = zeroShare(seen);
  channels.rows = 0;
  seen.fill(0);
}
