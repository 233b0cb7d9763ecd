/** What a model loses by a setting, and what it gains: one row for each. */

import { EngineError } from "../types/errors.ts";
import type { Activations, Head, KvCacheType, LoadOptions, Model, ModelSource } from "../types/index.ts";
import { divergence, logSum, Mean, winner } from "./compare.ts";
import { type Accuracy, type ScoredTask, scoreTasks, type Task } from "./tasks.ts";

/** One way to load the model. */
export interface Setting {
  kv: KvCacheType;
  activations: Activations;
  head: Head;
}

export interface QualityOptions {
  /** How keys and values are stored. @default f32, f16, q8, q4 where no list is given at all, else auto */
  kv?: readonly KvCacheType[] | undefined;
  /** How activations are rounded. @default auto */
  activations?: readonly Activations[] | undefined;
  /** What embedding and head are rounded to. @default stored */
  head?: readonly Head[] | undefined;
  /** The model to compare with. @default the model itself, with keys and values in f32 and everything else as stored and trained */
  against?: ModelSource | undefined;
  /** Multiple-choice questions that every setting answers. @default none */
  tasks?: readonly Task[] | undefined;
  /** The length of a window. @default 512 tokens */
  window?: number | undefined;
  /** The most tokens of the text. @default all */
  tokens?: number | undefined;
  /** Further options of every load. */
  load?: LoadOptions | undefined;
  /** Aborts the measurement; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as windows are done, from 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
}

export interface QualityRow extends Setting {
  perplexity: number;
  /** 95 % confidence, from the spread of single tokens. */
  interval: [number, number];
  /** Mean negative log-likelihood, in nats per token. */
  nll: number;
  tokens: number;
  /** Mean divergence from the reference, in nats; null where the vocabularies differ. */
  kl: number | null;
  /** Share of tokens whose likeliest successor is the reference's. */
  sameWinner: number | null;
  promptPerSecond: number;
  predictedPerSecond: number;
  /** Weights, KV cache and scratch, in bytes. */
  memory: number;
  /** Whether no other setting is as good in perplexity, speed and memory, and better in one. */
  pareto: boolean;
  /** What the questions gave, with the scores of each choice. */
  tasks?: Accuracy & { lines: ScoredTask[] };
}

export interface QualityReport {
  /** What the rows are compared with. */
  reference: { model: "itself" | "another"; perplexity: number };
  window: number;
  rows: QualityRow[];
}

type Load = (source: ModelSource, options: LoadOptions) => Promise<Model>;

const WINDOW = 512;
const DEFAULT_KV: readonly KvCacheType[] = ["f32", "f16", "q8", "q4"];
/** Bytes of the reference's logits that are kept; more are computed again for each row. */
const KEPT = 512 * 2 ** 20;
/** Of a normal distribution: 95 %. */
const Z = 1.96;
/** Tokens of a timed answer, and how often it is timed. */
const [PROMPT, ANSWER, TIMES] = [64, 32, 3];

export async function measureQuality(
  load: Load,
  source: ModelSource,
  text: string,
  options: QualityOptions,
): Promise<QualityReport> {
  const { signal, window = WINDOW, against, tasks, tokens = Infinity, onProgress = () => {} } = options;
  const settings = settingsOf(options);
  const common = { ...options.load, prefixReuse: false, maxSequences: 1, signal };
  const base = { ...common, kvCacheType: "f32", activations: "auto", head: "stored" } as const;
  const reference = await Reference.open(await load(against ?? source, base), text, { window, tokens, signal });
  // Room for one context each: otherwise smaller keys and values would be given room for more.
  const { contextLength } = reference.model.info;
  const room = against === undefined ? { contextLength, kvCacheTokens: contextLength } : {};
  const steps = reference.windows.length * settings.length;
  let done = 0;
  try {
    const rows: Omit<QualityRow, "pareto">[] = [];
    for (const setting of settings) {
      const { kv, activations, head } = setting;
      const model = await load(source, { ...room, ...common, kvCacheType: kv, activations, head });
      try {
        const row = await measured(model, reference, text, { window, tokens, signal }, () =>
          onProgress(Math.min(1, ++done / steps)),
        );
        const accuracy = tasks ? { tasks: await answered(model, tasks, signal) } : {};
        rows.push({ ...setting, ...row, ...(await speedOf(model, reference.windows[0]!, signal)), ...accuracy });
      } finally {
        await model.close();
      }
    }
    const own = {
      model: against === undefined ? "itself" : "another",
      perplexity: await reference.perplexity(text, window),
    } as const;
    return { reference: own, window, rows: withFront(rows) };
  } finally {
    await reference.close();
  }
}

async function answered(model: Model, tasks: readonly Task[], signal?: AbortSignal) {
  const { accuracy, tasks: lines } = await scoreTasks(model, tasks, { signal });
  return { ...accuracy, lines };
}

/** Every combination of the lists. */
export function settingsOf({ kv, activations, head }: QualityOptions): Setting[] {
  const some = kv ?? activations ?? head;
  return (kv ?? (some ? (["auto"] as const) : DEFAULT_KV)).flatMap((kv) =>
    (activations ?? (["auto"] as const)).flatMap((activations) =>
      (head ?? (["stored"] as const)).map((head) => ({ kv, activations, head })),
    ),
  );
}

interface TextOptions {
  window: number;
  tokens: number;
  signal?: AbortSignal | undefined;
}

/** The model that others are compared with, and its logits as far as they are kept. */
class Reference {
  readonly windows: readonly number[][];
  readonly model: Model;
  readonly #kept = new Map<number, Rows>();
  readonly #counted = new Set<number>();
  readonly #nll = new Mean();
  #room = KEPT;
  #signal: AbortSignal | undefined;

  private constructor(model: Model, windows: number[][], signal?: AbortSignal) {
    this.model = model;
    this.windows = windows;
    this.#signal = signal;
  }

  static async open(model: Model, text: string, { window, tokens, signal }: TextOptions): Promise<Reference> {
    try {
      return new Reference(model, await windowsOf(model, text, window, tokens), signal);
    } catch (error) {
      await model.close();
      throw error;
    }
  }

  async rows(index: number): Promise<Rows> {
    const kept = this.#kept.get(index);
    if (kept) return kept;
    const ids = this.windows[index]!;
    const rows = await rowsOf(this.model, ids, this.#signal);
    if (!this.#counted.has(index)) for (const nll of rows.losses) this.#nll.add(nll);
    this.#counted.add(index);
    const bytes = 4 * ids.length * this.model.info.vocab;
    if (bytes <= this.#room) {
      this.#room -= bytes;
      this.#kept.set(index, rows);
    }
    return rows;
  }

  /** Of all windows, whether or not they were compared. */
  async perplexity(text: string, window: number): Promise<number> {
    if (this.#counted.size === this.windows.length) return Math.exp(this.#nll.mean);
    return (await this.model.perplexity(text, { window, signal: this.#signal })).perplexity;
  }

  close(): Promise<void> {
    return this.model.close();
  }
}

async function windowsOf(model: Model, text: string, window: number, most: number): Promise<number[][]> {
  const ids = (await model.tokenize(text, { addSpecial: false })).slice(0, most);
  const size = Math.min(window, model.info.contextLength);
  const windows: number[][] = [];
  for (let at = 0; at < ids.length; at += size) windows.push(ids.slice(at, at + size));
  const whole = windows.filter(({ length }) => length >= 2);
  if (whole.length > 0) return whole;
  throw new EngineError("InvalidArgument", "quality: the text has fewer than two tokens", { option: "text" });
}

type Measured = Pick<QualityRow, "perplexity" | "interval" | "nll" | "tokens" | "kl" | "sameWinner" | "memory">;

async function measured(
  model: Model,
  reference: Reference,
  text: string,
  { window, tokens, signal }: TextOptions,
  onWindow: () => void,
): Promise<Measured> {
  const same = model.info.vocab === reference.model.info.vocab;
  const windows = same ? reference.windows : await windowsOf(model, text, window, tokens);
  const [nll, kl] = [new Mean(), new Mean()];
  let winners = 0;
  for (const [index, ids] of windows.entries()) {
    const own = await rowsOf(model, ids, signal);
    const other = same ? await reference.rows(index) : null;
    for (const loss of own.losses) nll.add(loss);
    for (let at = 0; other && at + 1 < ids.length; at++) {
      kl.add(divergence(other.logits[at]!, other.sums[at]!, own.logits[at]!, own.sums[at]!));
      if (other.winners[at] === own.winners[at]) winners++;
    }
    onWindow();
  }
  const { mean, error, count } = nll;
  return {
    perplexity: Math.exp(mean),
    interval: [Math.exp(mean - Z * error), Math.exp(mean + Z * error)],
    nll: mean,
    tokens: count,
    kl: same ? kl.mean : null,
    sameWinner: same ? winners / count : null,
    memory: model.info.memory.total,
  };
}

/** A window's logits, and what follows from each row of them. */
interface Rows {
  logits: Float32Array[];
  sums: number[];
  winners: number[];
  /** What each row but the last loses on the token that follows. */
  losses: number[];
}

async function rowsOf(model: Model, ids: readonly number[], signal?: AbortSignal): Promise<Rows> {
  const logits = await model.logits(ids, { all: true, signal });
  const sums = logits.map(logSum);
  const losses = ids.slice(1).map((id, at) => sums[at]! - logits[at]![id]!);
  return { logits, sums, winners: logits.map(winner), losses };
}

/** The best of a few runs: what else the machine does, it does not do all the time. */
async function speedOf(
  model: Model,
  ids: readonly number[],
  signal: AbortSignal | undefined,
): Promise<Pick<QualityRow, "promptPerSecond" | "predictedPerSecond">> {
  const room = model.info.contextLength - ANSWER;
  const prompt = ids.slice(0, Math.max(1, Math.min(PROMPT, room)));
  const known = prompt.map((id) => Math.min(id, model.info.vocab - 1));
  let [promptPerSecond, predictedPerSecond] = [0, 0];
  for (let run = 0; run < TIMES; run++) {
    const answer = model.generate(known, { maxTokens: ANSWER, temperature: 0, ignoreEos: true, signal });
    const { timings } = await answer.finished;
    promptPerSecond = Math.max(promptPerSecond, timings.promptPerSecond);
    predictedPerSecond = Math.max(predictedPerSecond, timings.predictedPerSecond);
  }
  return { promptPerSecond, predictedPerSecond };
}

type Judged = Pick<QualityRow, "perplexity" | "predictedPerSecond" | "memory">;

/** Whether one row is at least as good as another in everything, and better in something. */
const beats = (a: Judged, b: Judged) =>
  a.perplexity <= b.perplexity &&
  a.predictedPerSecond >= b.predictedPerSecond &&
  a.memory <= b.memory &&
  (a.perplexity < b.perplexity || a.predictedPerSecond > b.predictedPerSecond || a.memory < b.memory);

/** Marks the rows that no other one beats. */
export function withFront<Row extends Judged>(rows: readonly Row[]): (Row & { pareto: boolean })[] {
  return rows.map((row) => ({ ...row, pareto: !rows.some((other) => beats(other, row)) }));
}
