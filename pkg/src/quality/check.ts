/** Looks for what makes converted files write nonsense, and mends what can be mended. */

import type { RawPair } from "../convert/header.ts";
import { toHalf } from "../source/floats.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, InspectOptions, LoadOptions, Model, ModelSource } from "../types/index.ts";
import { type Gguf, isI2s, typeOf } from "./gguf.ts";
import { packed, TQ2_0 } from "./lint/dense.ts";
import type { Finding, Unchecked } from "./lint/finding.ts";
import { checkHead, type HeadFinding } from "./lint/head.ts";
import { type Checked, openChecked } from "./lint/model.ts";
import { checkOrder, isUndecided, type OrderFinding, reordered } from "./lint/order.ts";
import { checkRope, type RopeFinding, turned, whyNot } from "./lint/rope.ts";
import { checkText, type TextFinding } from "./lint/text_rules.ts";
import { checkWeights, type Mended, type WeightFinding } from "./lint/weight_rules.ts";
import {
  changed,
  kept,
  type NewFile,
  type NewTensor,
  newGguf,
  type Opening,
  type Part,
  type Range,
  whole,
  withFiles,
} from "./new_gguf.ts";

export type { Finding, Rule, Unchecked } from "./lint/finding.ts";
export type { NewFile } from "./new_gguf.ts";

export interface CheckOptions {
  /** Loads the model in both orders of its queries and keys, which tells RoPE of the other style. @default true */
  run?: boolean | undefined;
  /** Options of these loads. */
  load?: LoadOptions | undefined;
  /** Aborts the check; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as parts are done, from 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
}

export interface Checkup {
  findings: Finding[];
  /** Rules that could not be looked at. */
  unchecked: Unchecked[];
  /** The model as far as it can be mended; null where nothing is. */
  mended: NewFile | null;
}

/** What a check needs of its runtime. */
export interface CheckContext {
  opening: Opening;
  source: ModelSource;
  load(source: ModelSource, options: LoadOptions): Promise<Model>;
  inspect(source: ModelSource, options: InspectOptions): Promise<Description>;
}

type AnyFinding = Finding &
  Partial<WeightFinding> &
  Partial<TextFinding> &
  Partial<HeadFinding> &
  Partial<OrderFinding> &
  Partial<RopeFinding>;

export async function checkModel(context: CheckContext, options: CheckOptions): Promise<Checkup> {
  const { signal, onProgress = () => {}, run = true, load: loading = {} } = options;
  return withFiles(context.opening, signal, async (files) => {
    const checked = await openChecked(files, signal);
    const texts = checkText(checked);
    const found: AnyFinding[] = [...texts.findings, ...(await checkHead(checked, signal))];
    let read = 0;
    const { findings, mended, ...weights } = await checkWeights(
      checked,
      () => onProgress(++read / (checked.weights.length + 1)),
      signal,
    );
    found.push(...findings);
    const unchecked: Unchecked[] = [...texts.unchecked, ...weights.unchecked];
    await judgeOrder(context, checked, found, unchecked, signal);
    const load = (source: ModelSource, own: LoadOptions) => context.load(source, { ...loading, ...own });
    await judgeRope({ ...context, load }, checked, found, unchecked, run, signal);
    onProgress(1);
    const { gguf } = checked;
    const fixes = gguf && found.some(({ fixable }) => fixable) ? fixed(context.opening, gguf, found, mended) : null;
    return { findings: found.map(plain), unchecked, mended: fixes };
  });
}

async function judgeOrder(
  { inspect, source }: CheckContext,
  { gguf }: Checked,
  found: AnyFinding[],
  unchecked: Unchecked[],
  signal?: AbortSignal,
): Promise<void> {
  if (!gguf?.tensors.some(isI2s)) return;
  try {
    const description = await inspect(source, { weights: true, signal });
    found.push(...checkOrder(description));
    if (isUndecided(description))
      unchecked.push({ rule: "i2s-order", reason: "the weights do not tell groups of 128 from groups of 64" });
  } catch (error) {
    unchecked.push({ rule: "i2s-order", reason: reasonOf(error) });
  }
}

async function judgeRope(
  { load, source, opening }: CheckContext,
  { gguf, textError }: Checked,
  found: AnyFinding[],
  unchecked: Unchecked[],
  run: boolean,
  signal?: AbortSignal,
): Promise<void> {
  const skip = (reason: string) => unchecked.push({ rule: "rope", reason });
  const why = run ? (whyNot(gguf) ?? textError?.message ?? null) : "the model was not to be run";
  if (why !== null) return void skip(why);
  if (found.some(({ rule }) => rule === "i2s-order")) return void skip("the codes are in the wrong order");
  try {
    found.push(...(await checkRope(load, source, opening, gguf!, signal)));
  } catch (error) {
    skip(reasonOf(error));
  }
}

/** What does not load cannot be run; anything else is a defect. */
function reasonOf(error: unknown): string {
  if (error instanceof EngineError && error.code !== "Closed") return `the model does not run: ${error.message}`;
  throw error;
}

/** Without what a fix needs. */
function plain({ rule, level, message, advice, fixable, tensor, key }: AnyFinding): Finding {
  return { rule, level, message, advice, fixable, ...(tensor ? { tensor } : {}), ...(key ? { key } : {}) };
}

function fixed(opening: Opening, gguf: Gguf, found: readonly AnyFinding[], mended: readonly Mended[]): NewFile {
  const pairs = new Map<string, RawPair>(
    found.flatMap(({ pairs = [] }) => pairs).map((pair) => [pair.key, pair] as const),
  );
  const dropped = new Set(found.flatMap(({ drop }) => (drop === undefined ? [] : [drop])));
  const made: NewTensor[] = found.some(({ turned }) => turned)
    ? turned(gguf)
    : found.some(({ reordered }) => reordered)
      ? reordered(gguf)
      : gguf.tensors.map((tensor) => kept(tensor, [whole(tensor)]));
  const dense = new Set(found.flatMap(({ dense, tensor }) => (dense && tensor !== undefined ? [tensor] : [])));
  const tensors = made
    .filter(({ name }) => !dropped.has(name))
    .map((tensor): NewTensor => {
      if (dense.has(tensor.name)) return asTernary(gguf, tensor);
      const mend = mended.find((one) => one.tensor === tensor.name);
      return mend ? { ...tensor, parts: rescaled(gguf, tensor.parts, mend) } : tensor;
    });
  return newGguf(opening, gguf, changed(gguf.pairs, pairs), tensors);
}

function asTernary(gguf: Gguf, made: NewTensor): NewTensor {
  const type = typeOf(gguf.tensor(made.name)!).name;
  return { ...made, type: TQ2_0, parts: made.parts.map((part) => (isRange(part) ? packed({ type }, part) : part)) };
}

const isRange = (part: Part): part is Range => !(part instanceof Uint8Array);

/** Where the f16 of a block lies, by type. */
const SCALE_AT: Readonly<Record<string, number>> = { TQ1_0: 52, TQ2_0: 64, Q1_0: 0, Q2_0: 0, PQ2_0: 0, PTQ1_0: 26 };

/** Scales are put right where they lie in the old file: before rows move. */
function rescaled(gguf: Gguf, parts: readonly Part[], { tensor: name, blocks, scale }: Mended): Part[] {
  const tensor = gguf.tensor(name)!;
  const type = typeOf(tensor);
  const bits = toHalf(scale);
  const bytes = Uint8Array.of(bits & 255, bits >> 8);
  const patches = blocks.map((block) => ({
    offset: tensor.offset + block * type.bytes + SCALE_AT[type.name]!,
    bytes,
  }));
  return parts.map((part) => (isRange(part) ? { ...part, patches } : part));
}
