/** Counts and times of one model, taken where its engine is stepped. */

import type { Histogram, HistogramName, RequestOutcome, Statistics } from "../types/index.ts";

/** Bounds of seconds: those of every dialect together, so that each can be told from one set of counts. */
const SECONDS = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.025, 0.04, 0.05, 0.06, 0.075, 0.08, 0.1, 0.15, 0.2, 0.25,
  0.3, 0.4, 0.5, 0.75, 0.8, 1, 1.5, 2, 2.5, 5, 7.5, 10, 15, 20, 30, 40, 50, 60, 80, 120, 160, 240, 480, 640, 960, 1920,
  2560, 7680,
];
/** The same of tokens. */
const TOKENS = [
  1, 2, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2000, 2048, 4096, 5000, 8192, 10000,
  16384, 20000, 50000, 100000, 200000,
];

/** Codes of errors that are refusals: the request was right, and there was no room for it. */
export const REFUSALS: readonly string[] = ["QueueFull", "ContextFull", "OutOfMemory"];

/** Answers whose repetitions are known. */
const ANSWERS = 64;

const TIMES = ["firstToken", "gap", "perToken", "queue", "prefill", "decode", "request", "step"] as const;
const SIZES = ["stepTokens", "promptTokens", "generatedTokens"] as const;

class Counted implements Histogram {
  readonly bounds: readonly number[];
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = Array(bounds.length + 1).fill(0);
  }

  add(value: number): void {
    const at = this.bounds.findIndex((bound) => value <= bound);
    this.counts[at < 0 ? this.bounds.length : at]!++;
    this.sum += value;
  }
}

/** A request on the engine. Times are in milliseconds; `begun` and `first` are 0 before there are any. */
interface Timed {
  submitted: number;
  begun: number;
  first: number;
  last: number;
  prompt: number;
  tokens: number;
}

/** As much of an engine's event as is counted: a token is a number, whose lower 32 bits are its request. */
type Seen = number | { type: string; request: number };

export class Recorder {
  readonly #requests = new Map<number, Timed>();
  readonly #histograms = Object.fromEntries([
    ...TIMES.map((name) => [name, new Counted(SECONDS)]),
    ...SIZES.map((name) => [name, new Counted(TOKENS)]),
  ]) as Record<HistogramName, Counted>;
  readonly #ended: Statistics["requests"] = [];
  readonly #answers: { score: number; tokens: number }[] = [];
  readonly #errors: Record<string, number> = {};
  readonly #adapters: Record<string, number> = {};
  readonly #sums = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0, batchedRequests: 0, longestTokens: 0 };
  /** When the batch under way began, and for how long it was computed so far. */
  #begun = 0;
  #ms = 0;

  /** An empty histogram of seconds. */
  static times(): Histogram & { add(seconds: number): void } {
    return new Counted(SECONDS);
  }

  /** A request of an owner has ended. */
  ended(call: string, outcome: RequestOutcome, code?: string): void {
    const entry = this.#ended.find((one) => one.call === call && one.outcome === outcome);
    if (entry) entry.count++;
    else this.#ended.push({ call, outcome, count: 1 });
    if (code) this.#errors[code] = (this.#errors[code] ?? 0) + 1;
  }

  /** Requests with these adapters begin (1) or end (-1). */
  adapted(uses: readonly { name: string }[] = [], by: 1 | -1): void {
    for (const { name } of uses) this.#adapters[name] = (this.#adapters[name] ?? 0) + by;
  }

  /** An answer is complete. */
  answered(score: number, tokens: number): void {
    this.#answers.push({ score, tokens });
    if (this.#answers.length > ANSWERS) this.#answers.shift();
  }

  /** The share of repeated runs of tokens in the last answers. */
  get repetition(): { share: number; tokens: number; answers: number } {
    const tokens = this.#answers.reduce((sum, one) => sum + one.tokens, 0);
    const repeated = this.#answers.reduce((sum, one) => sum + one.score * one.tokens, 0);
    return { share: tokens > 0 ? repeated / tokens : 0, tokens, answers: this.#answers.length };
  }

  submitted(request: number): void {
    const now = performance.now();
    this.#requests.set(request, { submitted: now, begun: 0, first: 0, last: 0, prompt: 0, tokens: 0 });
  }

  /**
   * A step has ended that began at `begun`. It ended its batch where any request was served: `served` has request, first position and
   * count of each.
   */
  step(begun: number, served: Uint32Array, events: readonly Seen[]): void {
    const now = performance.now();
    this.#begun ||= begun;
    this.#ms += now - begun;
    for (let i = 0; i < served.length; i += 3) {
      const [id, from, count] = served.subarray(i, i + 3) as unknown as [number, number, number];
      const request = this.#requests.get(id);
      if (!request) continue;
      if (!request.begun) {
        request.begun = Math.max(this.#begun, request.submitted);
        this.#time("queue", request.begun - request.submitted);
      }
      this.#sums.longestTokens = Math.max(this.#sums.longestTokens, from + count);
    }
    for (const event of events) this.#take(event, now);
    if (served.length === 0) return;
    this.#sums.batchedRequests += served.length / 3;
    this.#time("step", this.#ms);
    this.#histograms.stepTokens.add(served.reduce((sum, value, i) => (i % 3 === 2 ? sum + value : sum), 0));
    this.#begun = this.#ms = 0;
  }

  /** A request is over, whoever ended it. */
  over(id: number): void {
    const request = this.#requests.get(id);
    if (!request) return;
    this.#requests.delete(id);
    const { submitted, first, last, prompt, tokens } = request;
    if (!first) return;
    this.#time("decode", last - first);
    this.#time("request", performance.now() - submitted);
    if (tokens > 1) this.#time("perToken", (last - first) / (tokens - 1));
    this.#histograms.promptTokens.add(prompt);
    this.#histograms.generatedTokens.add(tokens);
  }

  get statistics(): Statistics {
    const [requests, errors, adapters, histograms] = [this.#ended, this.#errors, this.#adapters, this.#histograms];
    return { requests, errors, ...this.#sums, adapters, histograms };
  }

  #take(event: Seen, now: number): void {
    const id = typeof event === "number" ? event >>> 0 : event.request;
    const request = this.#requests.get(id);
    if (!request) return;
    if (typeof event !== "number") {
      if (event.type === "prompt" && !request.prompt) {
        const { tokens, cached } = event as unknown as { tokens: number; cached: number };
        request.prompt = tokens;
        this.#sums.promptTokens += tokens - cached;
        this.#sums.cachedTokens += cached;
      } else if (event.type === "finished" || event.type === "failed") this.over(id);
      return;
    }
    this.#sums.generatedTokens++;
    request.tokens++;
    if (request.first) this.#time("gap", now - request.last);
    else {
      request.first = now;
      this.#time("firstToken", now - request.submitted);
      this.#time("prefill", now - (request.begun || request.submitted));
    }
    request.last = now;
  }

  #time(name: HistogramName, ms: number): void {
    this.#histograms[name].add(ms / 1000);
  }
}
