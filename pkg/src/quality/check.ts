/** Looks for what makes converted files write nonsense, and mends what can be mended. */

import type { RawPair } from "../convert/header.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, InspectOptions, LoadOptions, Model, ModelSource } from "../types/index.ts";
import { type Gguf, isI2s, typeOf } from "./gguf.ts";
import { toHalf } from "./half.ts";
import { packed, TQ2_0 } from "./lint/dense.ts";
import type { Finding, Rule, Unchecked } from "./lint/finding.ts";
import { checkHead, type HeadFinding } from "./lint/head.ts";
import { type Checked, openChecked } from "./lint/model.ts";
import { checkOrder, type OrderFinding, reordered } from "./lint/order.ts";
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
  const { signal, onProgress = () => {}, run = true } = options;
  return withFiles(context.opening, signal, async (files) => {
    const checked = await openChecked(files, signal);
    const found: AnyFinding[] = [...checkText(checked), ...(await checkHead(checked, signal))];
    let read = 0;
    const { findings, mended } = await checkWeights(
      checked.weights,
      () => onProgress(++read / (checked.weights.length + 1)),
      signal,
    );
    found.push(...findings);
    const unchecked: Unchecked[] = [];
    await judgeOrder(context, checked, found, unchecked, signal);
    await judgeRope(context, checked, found, unchecked, run, signal);
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
    found.push(...checkOrder(await inspect(source, { weights: true, signal })));
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
      // Rows that move are mended when they are in their places: by a check of the new file.
      return mend && tensor.parts.length === 1 && isPlain(tensor.parts[0]!)
        ? { ...tensor, parts: rescaled(gguf, mend) }
        : tensor;
    });
  return newGguf(opening, gguf, changed(gguf.pairs, pairs), tensors);
}

/** Rows that move are packed when they are in their places: by a check of the new file. */
function asTernary(gguf: Gguf, made: NewTensor): NewTensor {
  const tensor = gguf.tensor(made.name)!;
  const [part] = made.parts as [Range];
  if (!isPlain(part)) return made;
  return { ...made, type: TQ2_0, parts: [packed({ type: typeOf(tensor).name }, part)] };
}

const isPlain = (part: Part) => !(part instanceof Uint8Array) && !part.change;

/** Where the f16 of a block lies, by type. */
const SCALE_AT: Readonly<Record<string, number>> = { TQ1_0: 52, TQ2_0: 64, Q1_0: 0, Q2_0: 0, PQ2_0: 0, PTQ1_0: 26 };

function rescaled(gguf: Gguf, { tensor: name, blocks, scale }: Mended): (Uint8Array | Range)[] {
  const tensor = gguf.tensor(name)!;
  const { file, offset, bytes } = tensor;
  const type = typeOf(tensor);
  const [block, within] = [type.bytes, SCALE_AT[type.name]!];
  const bits = toHalf(scale);
  const parts: (Uint8Array | Range)[] = [];
  let at = 0;
  for (const index of blocks) {
    const place = index * block + within;
    if (place > at) parts.push({ file, offset: offset + at, length: place - at });
    parts.push(Uint8Array.of(bits & 255, bits >> 8));
    at = place + 2;
  }
  if (at < bytes) parts.push({ file, offset: offset + at, length: bytes - at });
  return parts;
}

/** In the order in which they are told. */
export const RULES: readonly Rule[] = [
  "pre-tokenizer",
  "template-eos",
  "generation-prompt",
  "eos-unwritten",
  "bos-twice",
  "head",
  "scales",
  "one-code",
  "code-3",
  "i2s-order",
  "rope",
  "dense-ternary",
];
