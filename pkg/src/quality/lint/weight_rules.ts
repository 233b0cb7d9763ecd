/** Rules about codes and scales: what no training leaves behind. */

import { BLOCK } from "./dense.ts";
import type { Finding, Rule, Unchecked } from "./finding.ts";
import type { Checked } from "./model.ts";
import { hasCodes, isBinary, isDense, isKnown, look, type Seen, type Weights } from "./weights.ts";

/** A scale so many times larger or smaller than the others is a mistake. */
const FAR = 1000;
/** Matrices of layers, which hold nearly all weights. */
const MATRIX = /^(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)|ssm_out)\.weight$/;
/** So many layers make neighbours to compare a single scale with. */
const FEWEST = 3;

/** A mended scale: the f16 that all other blocks of its tensor have. */
export interface Mended {
  tensor: string;
  blocks: readonly number[];
  scale: number;
}

export interface WeightFinding extends Finding {
  /** The matrix can be packed. */
  dense?: true;
}

export interface WeightFindings {
  findings: WeightFinding[];
  unchecked: Unchecked[];
  mended: Mended[];
}

export async function checkWeights(
  { weights: all, gguf }: Pick<Checked, "weights" | "gguf">,
  onRead: () => void,
  signal?: AbortSignal,
): Promise<WeightFindings> {
  // A GGUF's matrices run as they are stored; masters in safetensors are made ternary while they load.
  const ternary = gguf?.architecture.startsWith("bitnet") === true;
  const findings: WeightFinding[] = [];
  const mended: Mended[] = [];
  const single = new Map<string, { tensor: string; scale: number }[]>();
  for (const weights of all.filter(({ type }) => isKnown(type))) {
    const seen = await look(weights, signal);
    findings.push(...codeFindings(weights, seen), ...floatFindings(weights, seen));
    if (ternary) findings.push(...masterFindings(weights, seen));
    const { finding, mend } = scaleFinding(weights, seen);
    if (finding) findings.push(finding);
    if (mend) mended.push(mend);
    if (seen.scales.length === 1 && !finding) {
      single.set(weights.stem, [...(single.get(weights.stem) ?? []), { tensor: weights.name, scale: seen.scales[0]! }]);
    }
    onRead();
  }
  for (const scales of single.values()) findings.push(...farOff(scales));
  return { findings, unchecked: notLookedThrough(all), mended };
}

/** What is told of a matrix's codes and scales. */
const OF_MATRICES: readonly Rule[] = ["scales", "one-code", "code-3", "dense-ternary"];

function notLookedThrough(all: readonly Weights[]): Unchecked[] {
  const matrices = all.filter(({ type, dims }) => !isKnown(type) && dims.length > 1);
  const [first] = matrices;
  if (!first) return [];
  const types = [...new Set(matrices.map(({ type }) => type))].join(", ");
  const reason = `${matrices.length} tensors of ${types} are not looked through, the first is ${first.name}`;
  return OF_MATRICES.map((rule) => ({ rule, reason }));
}

/** Weights that BitNet's training rounds at each step, stored before that. */
function masterFindings({ name: tensor, type, stem, layer }: Weights, seen: Seen): Finding[] {
  const master = layer !== null && MATRIX.test(stem) && isDense(type) && !seen.threeValues && !seen.zero;
  if (!master) return [];
  return [
    {
      rule: "dense-ternary",
      level: "error",
      tensor,
      message: `${tensor}: expected rows of 0 and ± one number, as BitNet computes with them, found more values, stored as ${type}`,
      advice:
        "convert the checkpoint in safetensors with ternlight convert, which makes such weights ternary as training does",
      fixable: false,
    },
  ];
}

function codeFindings({ name: tensor, type }: Weights, { codes }: Seen): Finding[] {
  if (!codes) return [];
  const used = codes.filter((count) => count > 0).length;
  const found: Finding[] = [];
  if (!isBinary(type) && codes[3] > 0) {
    found.push({
      rule: "code-3",
      level: "error",
      tensor,
      message: `${tensor}: expected the codes 0, 1 and 2 (−1, 0, +1), found code 3 in ${codes[3]} places`,
      advice: "convert the model anew: the bytes are damaged, or of another layout than their type says",
      fixable: false,
    });
  }
  if (used === 1) {
    const code = codes.findIndex((count) => count > 0);
    found.push({
      rule: "one-code",
      level: "error",
      tensor,
      message: `${tensor}: all ${codes[code]} weights have the code ${code}; expected at least two codes`,
      advice: "convert the model anew: its weights were lost, or rounded by a scale that does not fit",
      fixable: false,
    });
  }
  return found;
}

function floatFindings({ name: tensor, type, stem, dims, layer }: Weights, seen: Seen): WeightFinding[] {
  const found: WeightFinding[] = [];
  const vectors = dims.length === 1 && stem.includes("norm");
  if (!hasCodes(type) && seen.broken.length > 0) found.push(broken(tensor, seen.broken, "value or block"));
  else if (vectors && seen.zero) {
    found.push({
      rule: "scales",
      level: "error",
      tensor,
      message: `${tensor}: every value is zero; expected the gains of a norm`,
      advice: "convert the model anew: a norm of zeros silences what it feeds",
      fixable: false,
    });
  }
  if (layer !== null && MATRIX.test(stem) && seen.threeValues) {
    const dense = seen.halves && dims[0]! % BLOCK === 0;
    found.push({
      rule: "dense-ternary",
      level: "warning",
      tensor,
      message: `${tensor}: every row holds nothing but 0 and ± one number, and is stored as ${type}`,
      advice: dense
        ? "store it as TQ2_0, with the same values in 2 bits each, as --fix does"
        : "ternlight convert stores it in 2 bits a weight",
      fixable: dense,
      ...(dense ? { dense: true as const } : {}),
    });
  }
  return found;
}

function broken(tensor: string, places: readonly number[], what: string): Finding {
  return {
    rule: "scales",
    level: "error",
    tensor,
    message: `${tensor}: NaN or infinity at ${what} ${places.join(", ")}; expected finite numbers`,
    advice: "convert the model anew: one such number spoils every answer",
    fixable: false,
  };
}

/** What is wrong with a tensor's block scales, and whether the others say what they should be. */
function scaleFinding(weights: Weights, seen: Seen): { finding?: Finding; mend?: Mended } {
  const { scales, lost, broken } = seen;
  if (!hasCodes(weights.type) || scales.length === 0) return {};
  const fine = scales.filter((scale) => Number.isFinite(scale) && scale !== 0).map(Math.abs);
  fine.sort();
  const middle = fine[fine.length >> 1] ?? 0;
  const far: number[] = [];
  for (const [block, scale] of scales.entries()) {
    const size = Math.abs(scale);
    // Rows of tokens that no text has taught may be tiny.
    const tiny = weights.layer !== null && size * FAR < middle;
    if (size !== 0 && Number.isFinite(size) && (size > FAR * middle || tiny)) far.push(block);
  }
  // Rows of a vocabulary that no text uses may be zero.
  const zeros = weights.layer === null && isBinary(weights.type) && lost.length < scales.length / 2 ? [] : lost;
  const wrong = [...new Set([...broken, ...zeros, ...far])].sort((a, b) => a - b);
  if (wrong.length === 0) return {};
  const what = [
    ...(broken.length > 0 ? ["NaN or infinite"] : []),
    ...(zeros.length > 0 ? ["zero over codes that are not"] : []),
    ...(far.length > 0 ? [`more than ${FAR} times off its neighbours`] : []),
  ].join(", ");
  const others = scales.filter((scale, block) => scale !== 0 && !wrong.includes(block));
  const agreed = others.length > 0 && others.every((scale) => scale === others[0]);
  const shown = wrong.slice(0, 4).map((block) => `block ${block}: ${scales[block]}`);
  const rest = wrong.length > shown.length ? " …" : "";
  const finding: Finding = {
    rule: "scales",
    level: "error",
    tensor: weights.name,
    message: `${weights.name}: ${wrong.length} of ${scales.length} scales ${what} (${shown.join("; ")}${rest}); expected about ${middle.toPrecision(3)}`,
    advice: agreed
      ? "all other blocks of this tensor have one scale, which --fix writes here too"
      : "convert the model anew: the file does not say what the scale was",
    fixable: agreed,
  };
  return agreed ? { finding, mend: { tensor: weights.name, blocks: wrong, scale: others[0]! } } : { finding };
}

/** Scales of whole tensors, compared with those of the same matrix in other layers. */
function farOff(scales: readonly { tensor: string; scale: number }[]): Finding[] {
  if (scales.length < FEWEST) return [];
  const sizes = scales.map(({ scale }) => Math.abs(scale)).sort((a, b) => a - b);
  const middle = sizes[sizes.length >> 1]!;
  return scales
    .filter(({ scale }) => Math.abs(scale) > FAR * middle || Math.abs(scale) * FAR < middle)
    .map(({ tensor, scale }) => ({
      rule: "scales",
      level: "error",
      tensor,
      message: `${tensor}: its scale is ${scale}, more than ${FAR} times off the other layers' (about ${middle.toPrecision(3)})`,
      advice: "convert the model anew: the file does not say what the scale was",
      fixable: false,
    }));
}
