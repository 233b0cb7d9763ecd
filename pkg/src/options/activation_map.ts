/**
 * Maps of activations by matrix: which matrices of a model a key names, and what the engine gets of it. Bundles for pages have this in a
 * file of its own, which a page loads with the first map.
 */

import { EngineError } from "../types/errors.ts";
import type { ActivationMap, Description, MappedPrecision } from "../types/index.ts";
import { meant } from "./nearest.ts";
import { show } from "./show.ts";

export const PRECISIONS: readonly MappedPrecision[] = ["int2", "int4", "int8", "int14", "float"];
/** In the order of the engine's `Precision::ALL`. */
const DIGITS: readonly MappedPrecision[] = ["int8", "int14", "float", "int4", "int2"];

/** Parts of the engine's layers, and the numbers that the matrices have among them: `Part` in `src/model/names.rs`. */
const PARTS = 26;
const NUMBERS: Readonly<Record<string, number>> = {
  ...{ attn_qkv: 3, attn_gate: 4, ssm_alpha: 5, ssm_beta: 6, ssm_out: 11, attn_q: 12, attn_k: 13, attn_v: 14 },
  ...{ attn_output: 18, ffn_gate: 20, ffn_up: 21, ffn_down: 23 },
};

/** GGUF's names of a layer's matrices, and Hugging Face's. */
const MATRICES: Readonly<Record<string, string>> = {
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_output: "self_attn.o_proj",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
  attn_qkv: "linear_attn.in_proj_qkv",
  attn_gate: "linear_attn.in_proj_z",
  ssm_alpha: "linear_attn.in_proj_a",
  ssm_beta: "linear_attn.in_proj_b",
  ssm_out: "linear_attn.out_proj",
};

const names = Object.keys(MATRICES);
const ours = new Map(Object.entries(MATRICES).map(([name, other]) => [other, name]));

/** A layer's number in the names of its tensors. */
const LAYER = /(?:^blk|(?:^|\.)layers)\.(\d+)\.(.+)\.weight$/;
const KEY = /^blk\.(\*|(\d{1,5})(?:-(\d{1,5}))?)(?:\.([\w*]+?))?(?:\.weight)?$/;

/** `blk.3.attn_q` of every matrix of a model's layers. */
export function layerMatrices({ tensors }: Pick<Description, "tensors">): Set<string> {
  const found = tensors.flatMap(({ name }) => {
    const [, layer, stem] = LAYER.exec(name) ?? [];
    if (stem === undefined) return [];
    const matrix = Object.hasOwn(MATRICES, stem) ? stem : ours.get(stem);
    return matrix === undefined ? [] : [`blk.${layer}.${matrix}`];
  });
  return new Set(found);
}

/** The map that a GGUF's own key holds as JSON. */
export function readMap(key: string, text: unknown): ActivationMap {
  let map: unknown;
  try {
    map = JSON.parse(String(text));
  } catch {
    // It is refused below, as any other value that is no object.
  }
  if (typeof map === "object" && map !== null && !Array.isArray(map)) return map as ActivationMap;
  const [expected, found] = ["a map of activations as JSON", show(text)];
  throw new EngineError("BadHeader", `${key} must be ${expected}, not ${found}`, { key, expected, found });
}

/**
 * What a map says of each matrix. A key that names a matrix goes before one that names whole layers, one layer before a range, a range
 * before all.
 *
 * @param model what the map is for
 * @returns precisions by `blk.3.attn_q`
 */
export function resolveMap(
  map: ActivationMap,
  model: Pick<Description, "tensors" | "config">,
): Map<string, MappedPrecision> {
  const matrices = [...layerMatrices(model)];
  const found = new Map<string, { rank: number; key: string; precision: MappedPrecision }>();
  for (const [key, precision] of Object.entries(map)) {
    const { rank, test } = pattern(key, model.config.layers);
    if (!PRECISIONS.includes(precision)) {
      const near = typeof precision === "string" ? meant(precision, PRECISIONS) : undefined;
      throw refused(key, `one of ${PRECISIONS.join(", ")}`, show(precision), near);
    }
    const named = matrices.filter(test);
    if (named.length === 0) throw refused(key, "a matrix that the model has", "none");
    for (const name of named) {
      const other = found.get(name);
      if (other?.rank === rank && other.precision !== precision) {
        throw refused(key, `${other.precision} for ${name}, as "${other.key}" says`, precision);
      }
      if (!other || other.rank <= rank) found.set(name, { rank, key, precision });
    }
  }
  return new Map([...found].map(([name, { precision }]) => [name, precision]));
}

/** A map as the engine reads it: a digit for each role of a tensor in each layer. */
export function flatMap(resolved: ReadonlyMap<string, MappedPrecision>, layers: number): string {
  const digits = new Array<number>(PARTS * layers).fill(0);
  for (const [name, precision] of resolved) {
    const [, layer, matrix] = name.split(".") as [string, string, string];
    digits[PARTS * Number(layer) + NUMBERS[matrix]!] = 1 + DIGITS.indexOf(precision);
  }
  return digits.join("");
}

/** What a key names, and how closely. */
function pattern(key: string, layers: number): { rank: number; test(name: string): boolean } {
  const [, which, first, last = first, matrix = "*"] = KEY.exec(key) ?? [];
  if (which === undefined) throw refused(key, "blk.LAYER, blk.FIRST-LAST or blk.*, each also with .MATRIX", key);
  if (matrix !== "*" && !Object.hasOwn(MATRICES, matrix)) {
    throw refused(key, `one of ${names.join(", ")}`, matrix, meant(matrix, names));
  }
  const [from, to] = which === "*" ? [0, layers - 1] : [Number(first), Number(last)];
  if (from > to || to >= layers) throw refused(key, `layers from 0 to ${layers - 1}`, which);
  const rank = (matrix === "*" ? 0 : 3) + (which === "*" ? 0 : from === to ? 2 : 1);
  const test = (name: string) => {
    const [, layer, own] = name.split(".");
    return Number(layer) >= from && Number(layer) <= to && (matrix === "*" || own === matrix);
  };
  return { rank, test };
}

function refused(key: string, expected: string, found: string, near?: string): EngineError {
  const hint = near === undefined ? "" : `; did you mean ${near}?`;
  const reason = `activations: "${key}": expected ${expected}, got ${found}${hint}`;
  return new EngineError("InvalidArgument", reason, { option: "activations", key, expected, found });
}
