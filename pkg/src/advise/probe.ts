/** Measures: a machine by itself, and how long steps with a model take on it. */

import { type Outside, UnstableEngine } from "../api/unstable.ts";
import { percentile } from "../bench/stats.ts";
import type { Description, Generation, Model } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";
import { type Curve, JITTER_MS, msAt, type Steps, shareOf } from "./simulate.ts";
import type { DeviceReport } from "./types.ts";

/** What a runtime tells of its machine. */
export interface Machine {
  runtime: string;
  processor: string | null;
  cores: number;
  physicalCores: number | null;
  freeMemory: number | null;
}

/** More than caches hold, and less than a phone has. */
const READ_BYTES = 256e6;
const STREAMS = [1, 2, 8];
const REPEAT = 5;

export async function deviceReport(outside: Outside, machine: Machine, signal?: AbortSignal): Promise<DeviceReport> {
  const engine = new UnstableEngine(outside);
  try {
    const args = { settings: {}, bytes: READ_BYTES, streams: STREAMS, repeat: REPEAT };
    const { flavour, threads, read, multiply } = await engine.roofline(args, signal);
    return {
      date: new Date().toISOString(),
      ...machine,
      simd: flavour.endsWith("relaxed") ? "relaxed" : "simd128",
      flavour,
      threads,
      readGbPerSecond: Math.max(...read.map((runs) => percentile(runs, 50))),
      gmacPerSecond: percentile(multiply, 50),
    };
  } finally {
    await engine.close();
  }
}

/** How many tokens an answer of one measurement has at least and at most: for about `JITTER_MS`. */
const [MIN_WRITTEN, MAX_WRITTEN] = [8, 96];
/** How often each measurement is repeated while there is time; the median counts. */
const TIMES = 3;
/** The same for the answers that show how even the machine is, and after how many milliseconds that is enough. */
const [TIMES_ALONE, ALONE_MS] = [16, 200];
/**
 * Milliseconds of answers before anything is measured. The runtime makes faster code of what runs often, for some thousands of tokens: a
 * third of the time of a small model's steps goes until then, and the answers of a server that runs for a day do not see it.
 */
const WARM_MS = 400;
/** Milliseconds of the measurements, after which none is repeated and larger numbers of requests are left out. */
const PROBE_MS = 900;
/** Positions of a block of the KV cache. */
const BLOCK = 32;
/** Steps of a prompt that are measured beside answers. */
const BESIDE = 4;

export interface ProbeOptions {
  /** The most requests at once. */
  most: number;
  prefillChunk: number;
  promptTokens: number;
  answerTokens: number;
  signal?: AbortSignal | undefined;
}

/** What a model was measured to take on this machine. */
export interface Probed {
  steps: Steps;
  /** Milliseconds of a message to the engine's worker, or back. */
  messageMs: number;
  /** How many times its median each measurement took. */
  jitter: number[];
}

/** Tokens of the conversations in which the probe writes answers: the context that it needs. */
export const probeContext = ({ promptTokens, answerTokens }: Pick<ProbeOptions, "promptTokens" | "answerTokens">) =>
  depthOf(promptTokens, answerTokens) + MAX_WRITTEN;

/** The middle of an answer, where whole blocks and one token more have been computed. */
const depthOf = (promptTokens: number, answerTokens: number) =>
  BLOCK * Math.max(1, Math.round((promptTokens + answerTokens / 2) / BLOCK)) + 1;

/**
 * The times of steps with so many requests at once, in conversations as long as they will be, and of chunks of a prompt, as requests of
 * the public API see them. Requests that write together have one prompt, which is computed once: all of them begin with the same step.
 */
export async function probe(model: Model, options: ProbeOptions): Promise<Probed> {
  const { most, prefillChunk, promptTokens } = options;
  await model.warmup();
  const { decode, prefill, beside, jitter, warm } = measurements(model, options);
  await warm();
  const begun = performance.now();
  // The second measurement knows how long a step takes.
  let ms = await decode(1, await decode(1, JITTER_MS, 1));
  const [alone, answers, chunks] = [ms, [{ rows: 1, ms }], [{ rows: 1, ms }]];
  const largest = Math.min(most, BLOCK / 2);
  // Most of a load is answers: they come first, also where little is measured in time.
  for (let rows = 2; rows <= largest && performance.now() - begun < PROBE_MS; rows *= 2) {
    ms = await decode(rows, ms);
    answers.push({ rows, ms });
  }
  const chunk = Math.min(prefillChunk, Math.max(promptTokens, 2 * BLOCK), model.info.contextLength - 1);
  const share = Math.min(shareOf(prefillChunk), chunk);
  for (const rows of new Set([Math.min(BLOCK, chunk), share, chunk]))
    if (rows > 1) chunks.push({ rows, ms: await prefill(rows) });
  const prompts = rising(chunks);
  const running = largest - 1;
  const more = running > 0 ? (await beside(running, share)) - msAt(prompts, share) : 0;
  const besideMs = running > 0 ? Math.max(0, more / running) : 0;
  await decode(1, alone, TIMES_ALONE);
  const last = answers.at(-1)!;
  if (2 * last.rows <= largest) answers.push({ rows: most, ms: further(last, most, { prompts, besideMs }) });
  const steps = { answers: rising(answers), prompts, besideMs };
  return { steps, messageMs: await messageMs(model), jitter };
}

/**
 * Milliseconds of a step with more answers than were measured: each further one costs what one costs beside a prompt, with its attention,
 * its logits and its choice; and all together cost what so many tokens of a prompt do, at least.
 */
const further = (last: Curve[number], rows: number, { prompts, besideMs }: Pick<Steps, "prompts" | "besideMs">) =>
  Math.max(last.ms + (rows - last.rows) * besideMs, msAt(prompts, rows));

/** Measures the same several times, while there is time. */
class Medians {
  /** How many times its median each measurement took so far. */
  readonly jitter: number[] = [];
  /** After this time nothing is repeated. */
  end = Number.POSITIVE_INFINITY;
  readonly #before: () => Promise<unknown>;

  constructor(before: () => Promise<unknown>) {
    this.#before = before;
  }

  async of(measure: () => Promise<number>, times = TIMES): Promise<number> {
    const found: number[] = [];
    const begun = performance.now();
    const more = () => {
      const now = performance.now();
      return found.length < (now < this.end ? TIMES : 1) || (found.length < times && now - begun < ALONE_MS);
    };
    while (more()) {
      await this.#before();
      found.push(await measure());
    }
    const middle = percentile(found, 50);
    this.jitter.push(...found.map((ms) => ms / middle));
    return middle;
  }
}

function measurements(model: Model, { promptTokens, answerTokens, signal }: ProbeOptions) {
  const { vocab, contextLength } = model.info;
  let salt = 0;
  const prompt = (tokens: number) => {
    salt += 7919;
    return Array.from({ length: tokens }, (_, i) => (31 * i + salt) % vocab);
  };
  const options = { temperature: 0.8, ignoreEos: true, signal } as const;
  // Pieces are read, as a caller does: that takes some of a core.
  const read = async (answer: Generation) => {
    for await (const _ of answer);
    return (await answer.finished).timings;
  };
  const room = BLOCK * Math.floor((contextLength - MIN_WRITTEN - 1) / BLOCK) + 1;
  const deep = prompt(Math.min(depthOf(promptTokens, answerTokens), Math.max(1, room)));
  const answersOf = (rows: number, maxTokens: number) =>
    Array.from({ length: rows }, (_, seed) => model.generate(deep, { ...options, seed, maxTokens }));
  // What begins with this prompt finds it computed, also where other prompts have taken its place in the cache.
  const medians = new Medians(() => model.generate(deep, { ...options, maxTokens: 1 }).finished);
  const median = medians.of.bind(medians);
  return {
    /** How many times its median each measurement took so far. */
    jitter: medians.jitter,
    /** Reads prompts and writes answers until the runtime has made its code fast; what is measured begins then. */
    async warm(): Promise<void> {
      const until = performance.now() + WARM_MS;
      while (performance.now() < until) {
        const answer = model.generate(prompt(Math.min(BLOCK, room)), { ...options, maxTokens: MAX_WRITTEN });
        for await (const _ of answer) if (performance.now() >= until) break;
        await answer.finished;
      }
      medians.end = performance.now() + PROBE_MS;
    },
    /** Milliseconds of a step of so many answers, of which one is expected to take about `ms`. */
    decode(rows: number, ms: number, times?: number): Promise<number> {
      const wanted = Math.min(MAX_WRITTEN, Math.max(MIN_WRITTEN, Math.ceil(JITTER_MS / ms)));
      const maxTokens = Math.max(2, Math.min(wanted, contextLength - deep.length));
      return median(async () => {
        const ended = await Promise.all(answersOf(rows, maxTokens).map(read));
        const found = ended.map(({ predictedMs, predictedN }) => predictedMs / (predictedN - 1));
        return percentile(found, 50);
      }, times);
    },
    /** Milliseconds of a step that reads so many tokens of a prompt. */
    prefill: (rows: number) =>
      median(async () => (await read(model.generate(prompt(rows), { ...options, maxTokens: 1 }))).ttftMs),
    /** Milliseconds of a step of so many answers that reads a prompt's share as well. */
    beside(rows: number, share: number): Promise<number> {
      const steps = Math.max(1, Math.min(BESIDE, Math.floor((contextLength - 1) / share)));
      const maxTokens = Math.max(1, Math.min(steps + 1, contextLength - deep.length));
      return median(async () => {
        const one = model.generate(prompt(steps * share), { ...options, maxTokens: 1 });
        const [ended] = await Promise.all([one, ...answersOf(rows, maxTokens)].map(read));
        return ended!.ttftMs / steps;
      });
    },
  };
}

/** Milliseconds of a message to the engine's worker, or back. */
async function messageMs(model: Model): Promise<number> {
  const found: number[] = [];
  for (let time = 0; time < 3 * TIMES; time++) {
    const asked = performance.now();
    await model.status();
    found.push((performance.now() - asked) / 2);
  }
  return percentile(found, 50);
}

/** Times of steps from what a machine reads and multiplies: the larger of the two, less than at best. */
export function estimate(device: DeviceReport, about: Description, rows: readonly number[]): Steps {
  const [{ bytesPerToken }] = about.heads as [Description["heads"][number]];
  const readMs = bytesPerToken / (READ_SHARE * device.readGbPerSecond * 1e6);
  const rowMs = about.parameters / (MULTIPLY_SHARE * device.gmacPerSecond * 1e6);
  const curve = rising(rows.map((count) => ({ rows: count, ms: Math.max(readMs, rowMs * count) + STEP_MS })));
  return { answers: curve, prompts: curve, besideMs: rowMs };
}

/** What kernels reach of the best, as the project's own benchmarks show it. */
const [READ_SHARE, MULTIPLY_SHARE] = [0.75, 0.5];
/** Of a step, for all that is no product. */
const STEP_MS = 0.1;

/** In order of rows, and never faster with more of them. */
function rising(steps: { rows: number; ms: number }[]): Curve {
  const sorted = steps.sort((a, b) => a.rows - b.rows);
  for (const [i, step] of sorted.entries()) if (i > 0) step.ms = Math.max(step.ms, sorted[i - 1]!.ms);
  return sorted;
}
