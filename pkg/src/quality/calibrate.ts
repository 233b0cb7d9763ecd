/** Chooses how the input of each matrix is rounded, from what its values are or from what rounding it would cost. */

import { NUMBERS, traceRows } from "../bench/trace.ts";
import { ACTIVATIONS_KEY } from "../options/activation_key.ts";
import { calibrateFlags as rows } from "../options/table/quality.ts";
import { EngineError } from "../types/errors.ts";
import type { ActivationMap, LoadOptions, MappedPrecision, Model, ModelSource } from "../types/index.ts";
import { Gguf } from "./gguf.ts";
import { measureQuality } from "./measure.ts";
import { changed, kept, type NewFile, newGguf, type Opening, pair, sizeOf, whole, withFiles } from "./new_gguf.ts";
import { enoughTokens, idsOf, meanLoss, WINDOW } from "./perplexity.ts";
import type { MeasuredReport } from "./report.ts";

export interface CalibrateOptions {
  /** Texts to measure with: half of them for the entropies, a quarter to choose by, a quarter for the report. */
  texts: readonly string[];
  /** The most pieces of 64 tokens that entropies are measured on. @default 512 pieces */
  samples?: number | undefined;
  /**
   * Bits of an input's int8 codes up to which it becomes int4; up to half of it, int2. Everything above becomes int8.
   * @default 2.1 bits
   */
  entropyThreshold?: number | undefined;
  /** By how much the perplexity may rise, in percent. Matrices are then chosen by the loss that each causes. @default none */
  budget?: number | undefined;
  /** The most tokens to choose by, and as many for the report. @default 2048 tokens */
  tokens?: number | undefined;
  /** Makes a GGUF with the map in its header, of a model that is one. @default false */
  gguf?: boolean | undefined;
  load?: LoadOptions | undefined;
  /** What was worked out before an interruption, by what it is of; new results are added. */
  memo?: Map<string, number> | undefined;
  signal?: AbortSignal | undefined;
  /** Called with what is measured, and the share of it that is done. */
  onProgress?: ((what: string, share: number) => void) | undefined;
}

export interface CalibratedMatrix {
  /** `blk.3.attn_q` */
  name: string;
  /** Bits of a weight's code. */
  bits: number;
  /** How its input is rounded as the model was trained. */
  trained: MappedPrecision;
  /** Bits of its input's int8 codes, with one scale for each token. */
  entropy: number;
  /** Of its input: the range, and the root mean square. */
  min: number;
  max: number;
  rms: number;
  /** What each precision adds to the mean negative log-likelihood, in nats, where this matrix and those of the same input alone have it. */
  losses: Partial<Record<MappedPrecision, number>>;
  precision: MappedPrecision;
}

export interface Calibrated {
  /** For the load option `activations`; empty where nothing is to be rounded otherwise than in training. */
  map: ActivationMap;
  by: "entropy" | "budget";
  matrices: CalibratedMatrix[];
  /** The model as it was trained, then with the map; the first row alone where the map is empty. */
  report: MeasuredReport;
  /** A copy with the map in its header, where it was asked for. */
  file: NewFile | null;
  /** Of the model, and of its copy with the map; a map beside it leaves it as it is. */
  bytesBefore: number;
  bytesAfter: number;
}

/** What the engine tells of a text's matrices: the numbers of its trace, and the names of its operations. */
export interface Tracing {
  /** Names of the engine's operations, in its order. */
  operations: readonly string[];
  /** The most tokens of a trace. */
  contextLength: number;
  tokenize: Model["tokenize"];
  trace(ids: number[]): Promise<readonly number[]>;
}

export interface CalibrateRuntime {
  source: ModelSource;
  opening: Opening;
  /** What the model was trained for. */
  contextLength(signal?: AbortSignal): Promise<number>;
  load(source: ModelSource, options: LoadOptions): Promise<Model>;
  traced<T>(source: ModelSource, options: LoadOptions, work: (tracing: Tracing) => Promise<T>): Promise<T>;
}

const SAMPLE = 64;
const CODES = 255;

/** Matrices of a layer that read the same input. They are rounded alike: otherwise it would be rounded twice. */
const SHARED: readonly (readonly string[])[] = [
  ["attn_q", "attn_k", "attn_v"],
  ["ffn_gate", "ffn_up"],
  ["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"],
];

/** Narrower ones come later. */
const NARROWER: readonly MappedPrecision[] = ["float", "int14", "int8", "int4", "int2"];
const width = (precision: MappedPrecision) => NARROWER.length - NARROWER.indexOf(precision);

/** Matrices that read one input, and what is known of it. */
interface Unit {
  matrices: { name: string; bits: number }[];
  trained: MappedPrecision;
  entropy: number;
  min: number;
  max: number;
  rms: number;
  losses: Partial<Record<MappedPrecision, number>>;
}

type Chosen = ReadonlyMap<Unit, MappedPrecision>;

export async function calibrateModel(runtime: CalibrateRuntime, options: CalibrateOptions): Promise<Calibrated> {
  const { budget, signal, tokens = rows.calibrationTokens.default, onProgress = () => {} } = options;
  if (budget !== undefined && options.entropyThreshold !== undefined) {
    const reason = "calibrate: entropyThreshold: a budget chooses by loss, give one of the two";
    throw new EngineError("InvalidArgument", reason, { option: "entropyThreshold" });
  }
  const texts = partsOf(options.texts);
  // The model's own map, if it has one, is not what it was trained for.
  const contextLength = Math.min(WINDOW, await runtime.contextLength(signal));
  const load = { contextLength, warmup: false, ...options.load, activations: {}, signal };
  const units = await runtime.traced(runtime.source, { ...load, prefixReuse: false }, (tracing) =>
    measured(tracing, texts, options),
  );
  const chosen =
    budget === undefined
      ? byEntropy(units, options.entropyThreshold ?? rows.entropyThreshold.default)
      : await new Choice(runtime, load, units, texts.choose.join("\n"), options).under(Math.log1p(budget / 100));
  const map = mapOf(chosen);
  const settings = Object.keys(map).length > 0 ? [{}, map] : [{}];
  const report = await measureQuality(runtime.load, runtime.source, texts.report.join("\n"), {
    activations: settings,
    tokens,
    load: { ...options.load },
    signal,
    onProgress: (share) => onProgress("before and after", share),
  });
  const file = options.gguf ? await withMap(runtime.opening, map, signal) : null;
  const bytesBefore = await withFiles(runtime.opening, signal, async ({ weights }) => sizeOf(weights));
  return {
    map,
    by: budget === undefined ? "entropy" : "budget",
    matrices: units.flatMap(({ matrices, ...of }, i) =>
      matrices.map(({ name, bits }) => ({ name, bits, ...of, precision: chosen.get(units[i]!) ?? of.trained })),
    ),
    report,
    file,
    bytesBefore,
    bytesAfter: file?.size ?? bytesBefore,
  };
}

interface Texts {
  calibrate: string[];
  choose: string[];
  report: string[];
}

/** Every fourth text chooses, every fourth is reported on. Fewer than four are taken as one, which is cut. */
function partsOf(texts: readonly string[]): Texts {
  const of = (...rest: number[]) => texts.filter((_, i) => rest.includes(i % 4));
  if (texts.length >= 4) return { calibrate: of(0, 1), choose: of(2), report: of(3) };
  const text = texts.join("\n");
  const space = (share: number) => {
    const at = text.indexOf(" ", Math.floor(share * text.length));
    return at < 0 ? text.length : at;
  };
  const [half, last] = [space(1 / 2), space(3 / 4)];
  return { calibrate: [text.slice(0, half)], choose: [text.slice(half, last)], report: [text.slice(last)] };
}

/** Entropy and range of each input, from the calibration texts. */
async function measured(tracing: Tracing, { calibrate }: Texts, options: CalibrateOptions): Promise<Unit[]> {
  const { samples = rows.calibrationSamples.default, signal, onProgress } = options;
  const size = Math.min(SAMPLE, tracing.contextLength);
  const pieces: number[][] = [];
  for (const text of calibrate) {
    const ids = await idsOf(tracing, text, size * samples);
    for (let at = 0; at < ids.length && pieces.length < samples; at += size) pieces.push(ids.slice(at, at + size));
    if (pieces.length >= samples) break;
  }
  enoughTokens(pieces.flat(), "calibrate", "texts");
  const inputs = new Map<string, Input>();
  for (const [i, ids] of pieces.entries()) {
    signal?.throwIfAborted();
    addTrace(inputs, await tracing.trace(ids), tracing.operations, ids.length);
    onProgress?.("entropies", (i + 1) / pieces.length);
  }
  const units = unitsOf(inputs);
  if (units.length > 0) return units;
  const [expected, found] = ["matrices of integers", "floats"];
  const reason = `calibrate: expected ${expected}, got ${found}, whose inputs are not rounded`;
  throw new EngineError("UnsupportedSetting", reason, { expected, found });
}

/** What was counted of a matrix's input. */
interface Input {
  bits: number;
  trained: MappedPrecision;
  codes: Float64Array;
  min: number;
  max: number;
  squares: number;
  count: number;
}

function addTrace(
  inputs: Map<string, Input>,
  numbers: readonly number[],
  operations: readonly string[],
  tokens: number,
): void {
  const each = NUMBERS + CODES;
  // The head, which comes last, keeps its rounding.
  const count = Math.floor(numbers.length / each);
  const at = (i: number, from: number, to: number) => numbers.slice(i * each + from, i * each + to);
  const told = Array.from({ length: count }, (_, i) => at(i, 0, NUMBERS)).flat();
  for (const [i, { name, cols, bits, scales, activations, input }] of traceRows(told, operations).entries()) {
    // Weights of floats meet floats.
    if (scales === "none") continue;
    const of = inputs.get(name) ?? {
      bits,
      trained: activations as MappedPrecision,
      codes: new Float64Array(CODES),
      ...{ min: Infinity, max: -Infinity, squares: 0, count: 0 },
    };
    inputs.set(name, of);
    for (const [code, times] of at(i, NUMBERS, each).entries()) of.codes[code]! += times;
    of.min = Math.min(of.min, input.min);
    of.max = Math.max(of.max, input.max);
    of.squares += input.rms ** 2 * tokens * cols;
    of.count += tokens * cols;
  }
}

/** Bits of a code. */
export function entropyOf(codes: ArrayLike<number>): number {
  const counts = Array.from(codes).filter((count) => count > 0);
  const total = counts.reduce((sum, count) => sum + count, 0);
  return counts.reduce((bits, count) => bits - (count / total) * Math.log2(count / total), 0);
}

function unitsOf(inputs: ReadonlyMap<string, Input>): Unit[] {
  const units = new Map<string, Unit>();
  for (const [name, { bits, trained, codes, min, max, squares, count }] of inputs) {
    const [, layer, matrix] = name.split(".");
    const shared = SHARED.findIndex((some) => some.includes(matrix!));
    const key = `${layer} ${shared < 0 ? matrix : shared}`;
    const known = units.get(key);
    if (known) known.matrices.push({ name, bits });
    else {
      const numbers = { entropy: entropyOf(codes), min, max, rms: Math.sqrt(squares / count) };
      units.set(key, { matrices: [{ name, bits }], trained, ...numbers, losses: {} });
    }
  }
  return [...units.values()];
}

/** What every input becomes by the bits of its codes. */
export const precisionOf = (entropy: number, threshold: number): MappedPrecision =>
  entropy > threshold ? "int8" : entropy > threshold / 2 ? "int4" : "int2";

const byEntropy = (units: readonly Unit[], threshold: number): Chosen =>
  new Map(units.map((unit) => [unit, precisionOf(unit.entropy, threshold)]));

/** Chooses by what each precision costs, measured one after another, as far as the budget goes. */
class Choice {
  readonly #runtime: CalibrateRuntime;
  readonly #load: LoadOptions;
  readonly #units: readonly Unit[];
  readonly #text: string;
  readonly #options: CalibrateOptions;
  readonly #memo: Map<string, number>;

  constructor(
    runtime: CalibrateRuntime,
    load: LoadOptions,
    units: readonly Unit[],
    text: string,
    options: CalibrateOptions,
  ) {
    this.#runtime = runtime;
    this.#load = load;
    this.#units = units;
    this.#text = text;
    this.#options = options;
    this.#memo = options.memo ?? new Map();
  }

  /** The narrowest precisions that together add no more than `limit` to the mean loss. */
  async under(limit: number): Promise<Chosen> {
    const whole = await this.#loss(new Map());
    const single = this.#units.flatMap((unit) =>
      (["int8", "int4", "int2"] as const)
        .filter((precision) => width(precision) < width(unit.trained))
        .map((precision) => ({ unit, precision })),
    );
    for (const [i, { unit, precision }] of single.entries()) {
      unit.losses[precision] = (await this.#loss(new Map([[unit, precision]]))) - whole;
      this.#options.onProgress?.("losses", (i + 1) / single.length);
    }
    const steps = greedy(single, limit);
    // Losses add up nearly, not quite: what was foreseen is measured, and cut to the longest beginning that stays within the budget.
    let [fits, fails] = [0, steps.length + 1];
    for (let tried = steps.length; fits + 1 < fails; tried = (fits + fails) >> 1) {
      if ((await this.#loss(new Map(steps.slice(0, tried)))) - whole <= limit) fits = tried;
      else fails = tried;
      this.#options.onProgress?.("the budget", fits / Math.max(1, fails - 1));
    }
    return new Map(steps.slice(0, fits));
  }

  async #loss(chosen: Chosen): Promise<number> {
    const { load, source } = this.#runtime;
    const { signal, tokens = rows.calibrationTokens.default } = this.#options;
    const activations = mapOf(chosen);
    const key = `loss ${JSON.stringify(activations)}`;
    const known = this.#memo.get(key);
    if (known !== undefined) return known;
    const model = await load(source, { ...this.#load, activations });
    try {
      const ids = await idsOf(model, this.#text, tokens);
      const found = await meanLoss(model, enoughTokens(ids, "calibrate", "texts"), signal);
      this.#memo.set(key, found);
      return found;
    } finally {
      await model.close();
    }
  }
}

type Step = [Unit, MappedPrecision];

/**
 * Takes the smallest losses first, as long as their sum stays within the limit. An input that is rounded already goes on to a narrower
 * precision, whose loss then counts in place of the other one.
 */
function greedy(single: readonly { unit: Unit; precision: MappedPrecision }[], limit: number): Step[] {
  const cost = (unit: Unit, precision: MappedPrecision | undefined) =>
    precision === undefined ? 0 : Math.max(0, unit.losses[precision]!);
  const sorted = [...single].sort(
    (a, b) => cost(a.unit, a.precision) - cost(b.unit, b.precision) || width(b.precision) - width(a.precision),
  );
  const now = new Map<Unit, MappedPrecision>();
  const steps: Step[] = [];
  let sum = 0;
  for (const { unit, precision } of sorted) {
    const before = now.get(unit);
    const next = sum + cost(unit, precision) - cost(unit, before);
    if (next > limit || (before !== undefined && width(before) <= width(precision))) continue;
    sum = next;
    now.set(unit, precision);
    steps.push([unit, precision]);
  }
  return steps;
}

/** A map with as few keys as layers that follow each other allow. */
export function mapOf(chosen: ReadonlyMap<{ matrices: readonly { name: string }[] }, MappedPrecision>): ActivationMap {
  const byMatrix = new Map<string, Map<number, MappedPrecision>>();
  for (const [{ matrices }, precision] of chosen) {
    for (const { name } of matrices) {
      const [, layer, matrix] = name.split(".") as [string, string, string];
      byMatrix.set(matrix, (byMatrix.get(matrix) ?? new Map()).set(Number(layer), precision));
    }
  }
  const map: Record<string, MappedPrecision> = {};
  for (const [matrix, layers] of byMatrix) {
    const sorted = [...layers].sort(([a], [b]) => a - b);
    for (let i = 0, end = 0; i < sorted.length; i = end) {
      const [first, precision] = sorted[i]!;
      for (end = i + 1; sorted[end]?.[0] === first + end - i && sorted[end]![1] === precision; ) end++;
      const last = first + end - i - 1;
      map[`blk.${first === last ? first : `${first}-${last}`}.${matrix}`] = precision;
    }
  }
  return map;
}

/** The same model with a map in its header; without the key where the map is empty. */
async function withMap(opening: Opening, map: ActivationMap, signal?: AbortSignal): Promise<NewFile> {
  return withFiles(opening, signal, async (files) => {
    const gguf = await Gguf.open(files.weights, signal);
    const value = Object.keys(map).length > 0 ? pair({ key: ACTIVATIONS_KEY, value: JSON.stringify(map) }) : null;
    const tensors = gguf.tensors.map((tensor) => kept(tensor, [whole(tensor)]));
    return newGguf(opening, gguf, changed(gguf.pairs, new Map([[ACTIVATIONS_KEY, value]])), tensors);
  });
}
