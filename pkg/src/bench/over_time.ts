/** A run of minutes or hours: speed and memory over time, in memory that does not grow with it. */

import type { OverTime, TimeSpan } from "./report.ts";

/** Most spans of a report. */
const SPANS = 120;
const MINUTE = 60;
/** Parts of the last minute: a new one begins as an old one leaves it. */
const PARTS = 60;

/** What one piece of the work gave, and what memory was after it. */
export interface Sample {
  /** Seconds after the beginning. */
  at: number;
  seconds: number;
  tokens: number;
  wasmBytes: number;
  processBytes: number | null;
}

/** Sums over the samples of some time. */
class Sums {
  readonly from: number;
  to: number;
  #seconds = 0;
  #tokens = 0;
  #samples = 0;
  #wasm = 0;
  #process: number | null = 0;

  constructor(from: number, to: number) {
    this.from = from;
    this.to = to;
  }

  get empty(): boolean {
    return this.#samples === 0;
  }

  add({ seconds, tokens, wasmBytes, processBytes }: Sample): void {
    this.#seconds += seconds;
    this.#tokens += tokens;
    this.#samples++;
    this.#wasm += wasmBytes;
    this.#process = this.#process === null || processBytes === null ? null : this.#process + processBytes;
  }

  join(other: Sums): void {
    this.#seconds += other.#seconds;
    this.#tokens += other.#tokens;
    this.#samples += other.#samples;
    this.#wasm += other.#wasm;
    this.#process = this.#process === null || other.#process === null ? null : this.#process + other.#process;
  }

  get span(): TimeSpan {
    const samples = Math.max(1, this.#samples);
    return {
      from: this.from,
      to: this.to,
      tokens: this.#tokens,
      tokensPerSecond: this.#seconds > 0 ? this.#tokens / this.#seconds : 0,
      wasmBytes: this.#wasm / samples,
      processBytes: this.#process === null ? null : this.#process / samples,
    };
  }
}

/** Collects the samples of a run that is to last so many seconds. */
export class Course {
  readonly #seconds: number;
  /** Of the first and of the last part that are compared. */
  readonly #window: number;
  readonly #spans: Sums[];
  readonly #first: Sums;
  /** Parts that reach back for the last window, the oldest first. */
  readonly #last: Sums[] = [];
  #end = 0;

  constructor(seconds: number) {
    this.#seconds = seconds;
    this.#window = Math.min(MINUTE, seconds / 3);
    const count = Math.min(SPANS, Math.max(1, Math.floor(seconds)));
    this.#spans = Array.from({ length: count }, (_, i) => new Sums((i * seconds) / count, ((i + 1) * seconds) / count));
    this.#first = new Sums(0, this.#window);
  }

  add(sample: Sample): void {
    const { at } = sample;
    this.#end = at;
    // What begins just before the end of the time may end behind it.
    const index = Math.min(this.#spans.length - 1, Math.floor((at / this.#seconds) * this.#spans.length));
    this.#spans[index]!.add(sample);
    if (at <= this.#window || this.#first.empty) this.#first.add(sample);
    const part = this.#window / PARTS;
    const to = Math.ceil(at / part) * part;
    if (this.#last.at(-1)?.to !== to) this.#last.push(new Sums(to - part, to));
    this.#last.at(-1)!.add(sample);
    while (this.#last.length > 1 && this.#last[0]!.to <= at - this.#window) this.#last.shift();
  }

  report(): OverTime {
    const last = new Sums(Math.max(0, this.#end - this.#window), this.#end);
    for (const part of this.#last) last.join(part);
    const [first, end] = [this.#first.span, last.span];
    const growth = (before: number | null, after: number | null) =>
      before === null || after === null || before === 0 ? null : after / before - 1;
    return {
      seconds: this.#end,
      spans: this.#spans.filter(({ empty }) => !empty).map(({ span }) => span),
      first,
      last: end,
      speed: first.tokensPerSecond > 0 ? end.tokensPerSecond / first.tokensPerSecond : 0,
      growth: {
        wasm: growth(first.wasmBytes, end.wasmBytes) ?? 0,
        process: growth(first.processBytes, end.processBytes),
      },
    };
  }
}

/** Whether memory grew by more than so many per cent. */
export const grewBy = ({ growth }: OverTime, percent: number): boolean =>
  Math.max(growth.wasm, growth.process ?? 0) > percent / 100;
