/** What a model loses by a setting, and what it gains: one row for each. */

import { logSum } from "../metrics/log_sum.ts";
import { EngineError } from "../types/errors.ts";
import type { ActivationMap, Activations, Head, KvCacheType, LoadOptions, Model, ModelSource } from "../types/index.ts";
import { divergence, Mean, winner } from "./compare.ts";
import { Kept, type Numbers, type Run } from "./kept.ts";
import { idsOf } from "./perplexity.ts";
import type { MeasuredReport, MeasuredRow, QualityRow, Setting } from "./report.ts";
import { scoreSome, type Task } from "./tasks.ts";

export interface QualityOptions {
  /** How keys and values are stored. @default f32, f16, q8, q4 where no list is given at all, else as `load` has it, or auto */
  kv?: readonly KvCacheType[] | undefined;
  /** How activations are rounded: names and maps. @default auto */
  activations?: readonly (Activations | ActivationMap)[] | undefined;
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
  /** Further options of every load: with `kvCacheType`, `activations` and `head`, what the lists do not vary. */
  load?: LoadOptions | undefined;
  /** What was measured before an interruption, by what it is of; new results are added. */
  memo?: Map<string, number> | undefined;
  /** Aborts the measurement; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as windows are done, from 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
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
  options: QualityOptions & { ids?: ArrayLike<number> | null | undefined },
): Promise<MeasuredReport> {
  const { signal, against, tasks, tokens = Infinity, onProgress = () => {} } = options;
  const memo = options.memo ?? new Map<string, number>();
  const settings = settingsOf(options);
  const common = { ...options.load, prefixReuse: false, maxSequences: 1, signal };
  const base = { ...common, kvCacheType: "f32", activations: {}, head: "stored" } as const;
  const own = against === undefined ? null : await lengthOf(load, source, common);
  const most = Math.min(options.window ?? WINDOW, own ?? Infinity);
  const reference = await Reference.open(await load(against ?? source, base), text, { window: most, tokens, signal });
  const { window } = reference;
  const steps = (reference.windows.length + (tasks?.length ?? 0)) * settings.length;
  let done = 0;
  const step = () => onProgress(Math.min(1, ++done / steps));
  try {
    // Room for one context each: otherwise smaller keys and values would be given room for more.
    const contextLength = own ?? reference.model.info.contextLength;
    const room = { contextLength, kvCacheTokens: contextLength };
    const rows: Omit<MeasuredRow, "pareto">[] = [];
    for (const setting of settings) {
      const { kv, activations, head } = setting;
      const kept = new Kept(memo, setting, common);
      // Nothing is left of it but to tell.
      const whole = kept.row() !== null && kept.run() !== null && (tasks ?? []).every((_, at) => kept.task(at));
      const model = whole ? null : await load(source, { ...room, ...common, kvCacheType: kv, activations, head });
      try {
        const more = { window, tokens, signal, ids: options.ids };
        const row = await rowOf(model, kept, reference, text, more, step);
        const accuracy = tasks ? { tasks: await answered(model, tasks, kept, step, signal) } : {};
        rows.push({ ...setting, ...row, ...accuracy });
      } finally {
        await model?.close();
      }
    }
    const perplexity = memo.get(REFERENCE) ?? (await reference.perplexity());
    memo.set(REFERENCE, perplexity);
    const model = against === undefined ? "itself" : "another";
    return { reference: { model, perplexity }, window, rows: withFront(rows) };
  } finally {
    await reference.close();
  }
}

/** The length of a model's context, which no other model tells. */
async function lengthOf(load: Load, source: ModelSource, options: LoadOptions): Promise<number> {
  const model = await load(source, { ...options, warmup: false });
  await model.close();
  return model.info.contextLength;
}

/** The reference's perplexity in a memo. */
const REFERENCE = "reference";

/** @param model null where all of it is kept */
async function rowOf(
  model: Model | null,
  kept: Kept,
  reference: Reference,
  text: string,
  options: TextOptions,
  onWindow: () => void,
): Promise<Numbers & Run> {
  let numbers = kept.row();
  if (numbers) for (const _ of reference.windows) onWindow();
  else {
    numbers = await measured(model!, reference, text, options, onWindow);
    kept.keep(numbers);
  }
  const run = kept.run() ?? (await runOf(model!, reference.windows[0]!, options.signal));
  kept.keepRun(run);
  return { ...numbers, ...run };
}

/** @param model null where all lines are kept */
async function answered(
  model: Model | null,
  tasks: readonly Task[],
  kept: Kept,
  onProgress: () => void,
  signal?: AbortSignal,
) {
  const { accuracy, tasks: lines } = await scoreSome(model, tasks, { signal, onProgress }, kept);
  return { ...accuracy, lines };
}

/** Every combination of the lists. */
export function settingsOf({ kv, activations, head, load = {} }: QualityOptions): Setting[] {
  const some = kv ?? activations ?? head ?? load.kvCacheType;
  // What no list varies is as the other options of the loads have it.
  return (kv ?? (some ? [load.kvCacheType ?? "auto"] : DEFAULT_KV)).flatMap((kv) =>
    (activations ?? [load.activations ?? "auto"]).flatMap((activations) =>
      (head ?? [load.head ?? "stored"]).map((head) => ({ kv, activations, head })),
    ),
  );
}

interface TextOptions {
  /** The most tokens of a window. */
  window: number;
  tokens: number;
  signal?: AbortSignal | undefined;
  /** Of a slice: the reference's id of each of its tokens. */
  ids?: ArrayLike<number> | null | undefined;
}

/** The model that others are compared with, and its logits as far as they are kept. */
class Reference {
  readonly model: Model;
  readonly windows: readonly number[][];
  /** The length of each but the last: no more than both models' contexts hold. */
  readonly window: number;
  readonly #kept = new Map<number, Rows>();
  readonly #counted = new Set<number>();
  readonly #nll = new Mean();
  #room = KEPT;
  #signal: AbortSignal | undefined;

  private constructor(model: Model, windows: number[][], window: number, signal?: AbortSignal) {
    this.model = model;
    this.windows = windows;
    this.window = window;
    this.#signal = signal;
  }

  static async open(model: Model, text: string, { window, tokens, signal }: TextOptions): Promise<Reference> {
    const size = Math.min(window, model.info.contextLength);
    try {
      return new Reference(model, await windowsOf(model, text, size, tokens), size, signal);
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
  async perplexity(): Promise<number> {
    for (const index of this.windows.keys()) if (!this.#counted.has(index)) await this.rows(index);
    return Math.exp(this.#nll.mean);
  }

  close(): Promise<void> {
    return this.model.close();
  }
}

async function windowsOf(model: Model, text: string, size: number, most: number): Promise<number[][]> {
  const ids = await idsOf(model, text, most);
  const windows: number[][] = [];
  for (let at = 0; at < ids.length; at += size) windows.push(ids.slice(at, at + size));
  const whole = windows.filter(({ length }) => length >= 2);
  if (whole.length > 0) return whole;
  throw new EngineError("InvalidArgument", "quality: the text has fewer than two tokens", { option: "text" });
}

const equal = (a: readonly number[], b: readonly number[]) =>
  a.length === b.length && a.every((id, at) => id === b[at]);

async function measured(
  model: Model,
  reference: Reference,
  text: string,
  options: TextOptions,
  onWindow: () => void,
): Promise<Numbers> {
  const { window, tokens, signal, ids: kept } = options;
  const own = model.info.tokenizer ? await windowsOf(model, text, window, tokens) : null;
  // Vocabularies of one size may still be two: they tell by the ids that the text has.
  const same = model.info.vocab === reference.model.info.vocab && (!own || equal(own.flat(), reference.windows.flat()));
  const windows = same ? reference.windows : (own ?? (await windowsOf(model, text, window, tokens)));
  const [nll, kl] = [new Mean(), new Mean()];
  let winners = 0;
  for (const [index, ids] of windows.entries()) {
    const mine = await rowsOf(model, ids, signal);
    const other = same ? await reference.rows(index) : null;
    for (const loss of mine.losses) nll.add(loss);
    for (let at = 0; other && at + 1 < ids.length; at++) {
      kl.add(divergence(other.logits[at]!, other.sums[at]!, mine.logits[at]!, mine.sums[at]!));
      if (other.winners[at] === mine.winners[at]) winners++;
    }
    onWindow();
  }
  const { mean, error, count } = nll;
  const within = !same && kept ? await withinSlice(model, reference.model, text, { ...options, ids: kept }) : null;
  return {
    perplexity: Math.exp(mean),
    interval: error === null ? null : [Math.exp(mean - Z * error), Math.exp(mean + Z * error)],
    nll: mean,
    tokens: count,
    kl: same ? kl.mean : (within?.kl ?? null),
    sameWinner: same ? winners / count : (within?.sameWinner ?? null),
  };
}

const SENTENCE = /[^.!?\n]+(?:[.!?\n]+\s*|$)/g;

/**
 * A slice beside the whole model, on the sentences that it has all tokens of: the divergence over the tokens that both have, and how
 * often the whole model's winner is the slice's. null where no sentence is within the slice.
 */
async function withinSlice(
  model: Model,
  whole: Model,
  text: string,
  { window, tokens, signal, ids }: TextOptions & { ids: ArrayLike<number> },
): Promise<Pick<QualityRow, "kl" | "sameWinner"> | null> {
  const place = new Map(Array.from(ids, (id, at) => [id, at] as const));
  const own: number[] = [];
  for (const sentence of text.match(SENTENCE) ?? []) {
    const found = await whole.tokenize(sentence, { addSpecial: false });
    if (found.every((id) => place.has(id))) own.push(...found);
    if (own.length >= tokens) break;
  }
  const kl = new Mean();
  let winners = 0;
  for (let at = 0; at < own.length; at += window) {
    const part = own.slice(at, at + window);
    if (part.length < 2) continue;
    const [other, mine] = await Promise.all([
      rowsOf(whole, part, signal),
      rowsOf(
        model,
        part.map((id) => place.get(id)!),
        signal,
      ),
    ]);
    for (let row = 0; row + 1 < part.length; row++) {
      const shared = Float32Array.from(ids, (id) => other.logits[row]![id]!);
      kl.add(divergence(shared, logSum(shared), mine.logits[row]!, mine.sums[row]!));
      if (other.winners[row] === ids[mine.winners[row]!]) winners++;
    }
  }
  return kl.count > 0 ? { kl: kl.mean, sameWinner: winners / kl.count } : null;
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
async function runOf(model: Model, ids: readonly number[], signal: AbortSignal | undefined): Promise<Run> {
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
  const { weights: weightBytes, total: memory } = model.info.memory;
  return { promptPerSecond, predictedPerSecond, weightBytes, memory };
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
