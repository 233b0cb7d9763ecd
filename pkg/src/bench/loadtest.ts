/**
 * The load test: many clients on one model at once. Each answer is compared, token by token, with what the same prompt gets alone, and
 * waiting times are measured. Lengths are random, some clients break off, some read slowly.
 */

import { checkAll } from "../options/check.ts";
import { loadtest as rows } from "../options/table/command_line.ts";
import { EngineError } from "../types/errors.ts";
import type { Finished, GenerateOptions, Model, ModelStatus } from "../types/index.ts";
import { randomBits } from "./blocks.ts";
import { Sample } from "./sample.ts";
import { percentile } from "./stats.ts";

export interface LoadTestOptions {
  /** Clients that ask at once; each asks again when it has its answer. @default 32 */
  clients?: number;
  /** How long clients go on asking. @default 30 */
  seconds?: number;
  /** Seed of prompts, lengths and the behaviour of clients. @default 1 */
  seed?: number;
}

export const LOAD_TEST = {
  clients: rows.clients.default,
  seconds: rows.seconds.default,
  seed: rows.seed.default,
} as const;

export const checkLoadTest = (options: object): void => void checkAll("loadtest", rows, options);

interface Percentiles {
  p50: number;
  p95: number;
  p99: number;
  most: number;
}

export interface LoadTestReport {
  clients: number;
  seconds: number;
  /** Answers that ended, that the client broke off, and that were refused because too many waited. */
  answers: { whole: number; brokenOff: number; refused: number };
  /** Answers that differ from what the prompt gets alone, or whose pieces are not their text. */
  wrong: number;
  tokensPerSecond: number;
  /** Share of prompt tokens that another request had computed. */
  cachedShare: number;
  /** From the call to the first piece: of all prompts, and of those of at most 32 tokens. */
  firstPieceMs: Percentiles;
  shortFirstPieceMs: Percentiles;
  /** Between two pieces, for readers that are not slow. */
  gapMs: Percentiles;
  /** Before the clients begin: between two pieces of one answer, alone and while a long prompt is read beside it. */
  beside: { promptTokens: number; aloneGapMs: Percentiles; gapMs: Percentiles; firstPieceMs: number };
  /** Bytes after a tenth of the time and at the end. */
  memory: { wasmBytes: [number, number]; processBytes: [number, number] | null };
  /** At the end: nothing may be running, waiting or in use. */
  status: ModelStatus;
}

/** How many prompts there are. */
const ITEMS = 24;
const ANSWER = 96;
const LONGEST_PROMPT = 256;
const SHORT = 32;
/** Gaps between pieces that are measured before the long prompt comes. */
const ALONE = 32;
/** Tokens of a prompt that takes many steps to read. */
const LONG = 2000;
/** One answer in ten is broken off, and one in ten is read slowly. */
const TEN = 10;

interface Item {
  prompt: number[];
  seed: number;
  answer: number[];
}

/** The times, counts and answers of a load test while it runs. */
class Tally {
  readonly first: Sample;
  readonly shortFirst: Sample;
  readonly gaps: Sample;
  readonly answers = { whole: 0, brokenOff: 0, refused: 0 };
  wrong = 0;
  tokens = 0;
  cached = 0;
  prompts = 0;

  constructor(seed: number) {
    this.first = new Sample(seed);
    this.shortFirst = new Sample(seed);
    this.gaps = new Sample(seed);
  }

  /** Compares an answer with what its prompt gets alone. A client that breaks off may have any beginning of it. */
  compare(expected: readonly number[], heard: { text: string; tokens: number[] }, finished: Finished, whole: boolean) {
    const same = (found: readonly number[]) =>
      found.every((id, i) => id === expected[i]) && (!whole || found.length === expected.length);
    if (!same(heard.tokens) || !same(finished.tokens) || !finished.text.startsWith(heard.text)) this.wrong++;
    if (whole && finished.text !== heard.text) this.wrong++;
    this.answers[whole ? "whole" : "brokenOff"]++;
    this.tokens += finished.tokens.length;
    const { cachedN, promptN, recomputedN = 0 } = finished.timings;
    this.cached += cachedN;
    this.prompts += cachedN + promptN + recomputedN;
  }
}

type Below = (most: number) => number;
type Sampling = Pick<GenerateOptions, "temperature" | "ignoreEos" | "signal">;

/**
 * Runs the load test.
 *
 * @throws {EngineError} `InvalidArgument` for options out of range and for a context that is too short
 */
export async function loadTest(
  model: Model,
  options: LoadTestOptions,
  { processBytes, signal }: { processBytes(): number | null; signal?: AbortSignal },
): Promise<LoadTestReport> {
  checkLoadTest(options);
  const { clients, seconds, seed } = { ...LOAD_TEST, ...options };
  const random = randomBits(seed);
  const below: Below = (most) => random() % most;
  const sampling = { temperature: 0.8, ignoreEos: true, signal };
  const items = await answeredAlone(model, below, sampling);
  const length = Math.min(LONG, model.info.contextLength - 1);
  const longPrompt = Array.from({ length }, () => below(model.info.vocab));
  const besides = await beside(model, longPrompt, sampling);

  const tally = new Tally(seed);
  const begun = performance.now();
  const until = begun + seconds * 1000;
  const client = async () => {
    while (performance.now() < until) {
      try {
        await ask(model, items[below(ITEMS)]!, below, sampling, tally);
      } catch (error) {
        if ((error as { code?: string }).code !== "QueueFull") throw error;
        tally.answers.refused++;
        await new Promise((resolve) => setTimeout(resolve, 50 + below(100)));
      }
    }
  };
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
    answers: tally.answers,
    wrong: tally.wrong,
    tokensPerSecond: tally.tokens / elapsed,
    cachedShare: tally.prompts > 0 ? tally.cached / tally.prompts : 0,
    firstPieceMs: percentiles(tally.first),
    shortFirstPieceMs: percentiles(tally.shortFirst),
    gapMs: percentiles(tally.gaps),
    beside: besides,
    memory: {
      wasmBytes: [before[0], after[0]],
      processBytes: before[1] === null || after[1] === null ? null : [before[1], after[1]],
    },
    status: await model.status(),
  };
}

/** Random prompts, each with what it is answered while nothing else runs. */
async function answeredAlone(model: Model, below: Below, sampling: Sampling): Promise<Item[]> {
  const { vocab, contextLength } = model.info;
  const longest = Math.min(LONGEST_PROMPT, contextLength - ANSWER);
  if (longest < 1) throw new EngineError("InvalidArgument", `the load test wants a context of ${ANSWER + 1} or more`);
  const items: Item[] = [];
  while (items.length < ITEMS) {
    const long = items.length % 4 === 0;
    const length = 1 + below(long ? longest : Math.min(SHORT, longest));
    const prompt = Array.from({ length }, () => below(vocab));
    // Some begin as others do, so that they share a prefix of the KV cache.
    if (items.length % 3 === 0 && items.length > 0) prompt.unshift(...items.at(-3)!.prompt);
    prompt.length = Math.min(prompt.length, longest);
    const own = { ...sampling, seed: below(2 ** 31), maxTokens: ANSWER };
    items.push({ prompt, seed: own.seed, answer: (await model.generate(prompt, own).finished).tokens });
  }
  return items;
}

/** One answer for one client, which may break off or read slowly. */
async function ask(model: Model, item: Item, below: Below, sampling: Sampling, tally: Tally): Promise<void> {
  const { prompt, seed, answer } = item;
  const maxTokens = 1 + below(ANSWER);
  const behaviour = below(TEN);
  const breakAfter = behaviour === 0 ? below(maxTokens) : Infinity;
  const slow = behaviour === 1;
  const asked = performance.now();
  let last = asked;
  const heard = { text: "", tokens: [] as number[] };
  const generation = model.generate(prompt, { ...sampling, seed, maxTokens });
  for await (const piece of generation) {
    const now = performance.now();
    if (last === asked) {
      tally.first.push(now - asked);
      if (prompt.length <= SHORT) tally.shortFirst.push(now - asked);
    } else if (!slow) tally.gaps.push(now - last);
    heard.text += piece.text;
    heard.tokens.push(...piece.tokens);
    if (heard.tokens.length > breakAfter) break;
    if (slow) await new Promise((resolve) => setTimeout(resolve, below(20)));
    last = slow ? now : performance.now();
  }
  tally.compare(answer.slice(0, maxTokens), heard, await generation.finished, breakAfter === Infinity);
}

/** Measures one answer while nothing else runs, and then while a long prompt is read. */
async function beside(model: Model, prompt: number[], sampling: GenerateOptions): Promise<LoadTestReport["beside"]> {
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
