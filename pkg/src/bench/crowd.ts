/**
 * Many clients on one model at once: what each gets is compared, token by token, with what the same prompt gets alone, and what they
 * wait for is measured. Lengths are random, some clients break off, some read slowly.
 */

import { checkAll } from "../options/check.ts";
import { loadtest as rows } from "../options/table/command_line.ts";
import { EngineError } from "../types/errors.ts";
import type { Finished, GenerateOptions, Model, ModelStatus } from "../types/index.ts";
import { randomBits } from "./blocks.ts";
import { percentile } from "./stats.ts";

export interface CrowdOptions {
  /** Clients that ask at once; each asks again when it has its answer. @default 32 */
  clients?: number;
  /** @default 30 */
  seconds?: number;
  /** Of prompts, lengths and whims. @default 1 */
  seed?: number;
}

const { clients, seconds, seed } = rows;
export const CROWD = { clients: clients.default, seconds: seconds.default, seed: seed.default } as const;

export const checkCrowd = (options: object): void => void checkAll("loadtest", rows, options);

interface Percentiles {
  p50: number;
  p95: number;
  p99: number;
  most: number;
}

export interface CrowdReport {
  clients: number;
  seconds: number;
  /** Answers that ended, were broken off, and were refused for a full queue. */
  answers: { whole: number; brokenOff: number; refused: number };
  /** Answers that differ from what the prompt gets alone, or whose pieces are not their text. */
  wrong: number;
  tokensPerSecond: number;
  /** Prompt tokens that others had computed, of all. */
  cachedShare: number;
  /** From the call to the first piece: of all prompts, and of those of at most 32 tokens. */
  firstPieceMs: Percentiles;
  shortFirstPieceMs: Percentiles;
  /** Between two pieces, of readers that do not dawdle. */
  gapMs: Percentiles;
  /** Before the crowd comes: between two pieces of one answer, alone and while a long prompt is read beside it. */
  beside: { promptTokens: number; aloneGapMs: Percentiles; gapMs: Percentiles; firstPieceMs: number };
  /** After a tenth of the time, and at the end. */
  memory: { wasmBytes: [number, number]; processBytes: [number, number] | null };
  /** At the end: nothing may be left. */
  status: ModelStatus;
}

/** Prompts with what each of them is answered alone. */
const ITEMS = 24;
const ANSWER = 96;
const LONGEST_PROMPT = 256;
const SHORT = 32;
/** Pieces of an answer that nothing else disturbs. */
const ALONE = 32;
/** A prompt that takes many steps to read. */
const LONG = 2000;
/** Times that are kept of each kind. */
const NOTED = 1 << 14;
/** Of ten answers one is broken off, and one read slowly. */
const TEN = 10;

interface Item {
  prompt: number[];
  seed: number;
  answer: number[];
}

export async function crowd(
  model: Model,
  options: CrowdOptions,
  { processBytes, signal }: { processBytes(): number | null; signal?: AbortSignal },
): Promise<CrowdReport> {
  checkCrowd(options);
  const { clients, seconds, seed } = { ...CROWD, ...options };
  const random = randomBits(seed);
  const below = (most: number) => random() % most;
  const sampling = { temperature: 0.8, ignoreEos: true, signal };

  const longest = Math.min(LONGEST_PROMPT, model.info.contextLength - ANSWER);
  if (longest < 1) throw new EngineError("InvalidArgument", `the load test wants a context of ${ANSWER + 1} or more`);
  const items: Item[] = [];
  while (items.length < ITEMS) {
    const long = items.length % 4 === 0;
    const prompt = Array.from({ length: 1 + below(long ? longest : Math.min(SHORT, longest)) }, () =>
      below(model.info.vocab),
    );
    // Some begin as others do.
    if (items.length % 3 === 0 && items.length > 0) prompt.unshift(...items.at(-3)!.prompt);
    prompt.length = Math.min(prompt.length, longest);
    const own = { ...sampling, seed: below(2 ** 31), maxTokens: ANSWER };
    items.push({ prompt, seed: own.seed, answer: (await model.generate(prompt, own).finished).tokens });
  }

  const length = Math.min(LONG, model.info.contextLength - 1);
  const besides = await beside(
    model,
    Array.from({ length }, () => below(model.info.vocab)),
    sampling,
  );
  const [first, shortFirst, gaps] = [new Sample(seed), new Sample(seed), new Sample(seed)];
  const answers = { whole: 0, brokenOff: 0, refused: 0 };
  let [wrong, tokens, cached, read] = [0, 0, 0, 0];
  const begun = performance.now();
  const until = begun + seconds * 1000;

  async function ask(): Promise<void> {
    const { prompt, seed, answer } = items[below(ITEMS)]!;
    const maxTokens = 1 + below(ANSWER);
    const whim = below(TEN);
    const breakAfter = whim === 0 ? below(maxTokens) : Infinity;
    const slow = whim === 1;
    const asked = performance.now();
    let [text, last] = ["", asked];
    const said: number[] = [];
    const generation = model.generate(prompt, { ...sampling, seed, maxTokens });
    for await (const piece of generation) {
      const now = performance.now();
      if (last === asked) {
        first.push(now - asked);
        if (prompt.length <= SHORT) shortFirst.push(now - asked);
      } else if (!slow) gaps.push(now - last);
      text += piece.text;
      said.push(...piece.tokens);
      if (said.length > breakAfter) break;
      if (slow) await new Promise((resolve) => setTimeout(resolve, below(20)));
      last = slow ? now : performance.now();
    }
    const finished = await generation.finished;
    const expected = answer.slice(0, maxTokens);
    const same = (found: readonly number[], whole: boolean) =>
      found.every((id, i) => id === expected[i]) && (!whole || found.length === expected.length);
    const whole = breakAfter === Infinity;
    if (!same(said, whole) || !same(finished.tokens, whole) || !finished.text.startsWith(text)) wrong++;
    if (whole && finished.text !== text) wrong++;
    answers[whole ? "whole" : "brokenOff"]++;
    tokens += finished.tokens.length;
    cached += finished.timings.cachedN;
    read += finished.timings.cachedN + finished.timings.promptN;
  }

  async function client(): Promise<void> {
    while (performance.now() < until) {
      try {
        await ask();
      } catch (error) {
        if ((error as { code?: string }).code !== "QueueFull") throw error;
        answers.refused++;
        await new Promise((resolve) => setTimeout(resolve, 50 + below(100)));
      }
    }
  }

  const memory = async () => [(await model.status()).memoryBytes, processBytes()] as const;
  const early = new Promise<Awaited<ReturnType<typeof memory>>>((resolve, reject) =>
    setTimeout(() => memory().then(resolve, reject), seconds * 100),
  );
  await Promise.all(Array.from({ length: clients }, client));
  const elapsed = (performance.now() - begun) / 1000;
  const [before, after] = [await early, await memory()];
  return {
    clients,
    seconds: elapsed,
    answers,
    wrong,
    tokensPerSecond: tokens / elapsed,
    cachedShare: read > 0 ? cached / read : 0,
    firstPieceMs: percentiles(first),
    shortFirstPieceMs: percentiles(shortFirst),
    gapMs: percentiles(gaps),
    beside: besides,
    memory: {
      wasmBytes: [before[0], after[0]],
      processBytes: before[1] === null || after[1] === null ? null : [before[1], after[1]],
    },
    status: await model.status(),
  };
}

/** One answer is written while nothing else happens, and then while a long prompt is read. */
async function beside(model: Model, prompt: number[], sampling: GenerateOptions): Promise<CrowdReport["beside"]> {
  const [alone, together] = [new Sample(0), new Sample(0)];
  const short = { ...sampling, onContextFull: "shift" } as const;
  let long: Promise<Finished> | null = null;
  let ended = false;
  let last = 0;
  for await (const _ of model.generate(prompt.slice(0, 1), short)) {
    const now = performance.now();
    if (last > 0) (long ? together : alone).push(now - last);
    last = now;
    if (ended) break;
    if (!long && alone.values.length >= ALONE) {
      long = model.generate(prompt, { ...sampling, maxTokens: 1 }).finished;
      const end = () => {
        ended = true;
      };
      long.then(end, end);
    }
  }
  const { timings } = await long!;
  return {
    promptTokens: prompt.length,
    aloneGapMs: percentiles(alone),
    gapMs: percentiles(together),
    firstPieceMs: timings.ttftMs,
  };
}

const percentiles = ({ values, most }: Sample): Percentiles => {
  const [p50, p95, p99] = [50, 95, 99].map((p) => percentile(values, p)) as [number, number, number];
  return { p50, p95, p99, most };
};

/** Of many numbers the largest, and so many that each is as likely among them as any other: notes must not be what grows. */
class Sample {
  readonly values: number[] = [];
  most = 0;
  #count = 0;
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = randomBits(seed);
  }

  push(value: number): void {
    this.most = Math.max(this.most, value);
    this.#count++;
    const at = this.values.length < NOTED ? this.values.length : this.#random() % this.#count;
    if (at < NOTED) this.values[at] = value;
  }
}
