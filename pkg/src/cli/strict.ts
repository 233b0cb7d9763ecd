/** `inspect --strict`: whether the layers hold only two values per scale (`1bit`), or only three (`ternary`). */

import { EngineError } from "../types/errors.ts";
import type { Description, TensorSummary } from "../types/index.ts";

export type Kind = "1bit" | "ternary";

/** How many values per scale a storage type can hold. All other types hold more than three. */
const VALUES: Record<string, number> = { Q1_0: 2, TQ1_0: 3, TQ2_0: 3, I2_S: 3, U8x4: 3 };
const MOST: Record<Kind, number> = { "1bit": 2, ternary: 3 };

export interface Verdict {
  kind: Kind;
  /** Names the first matrix that holds more; null if none does. */
  reason: EngineError | null;
  /** What the verdict rests on: the types in the header, or the weights as well. */
  decidedOn: "header" | "weights";
}

/** Judges every matrix of the layers. Embedding, head, norms and biases do not count. */
export function judge(kind: Kind, { tensors }: Description): Verdict {
  const matrices = tensors.filter(({ name, shape }) => /\.\d+\./.test(name) && shape.length > 1);
  const held = matrices.map((tensor) => ({ tensor, ...valuesOf(tensor, MOST[kind]) }));
  const over = held.find(({ values }) => values > MOST[kind]);
  const decidedOn = (over ? [over] : held).some(({ read }) => read) ? "weights" : "header";
  return { kind, decidedOn, reason: over ? refusal(kind, over.tensor, decidedOn) : null };
}

/** A tensor of a ternary type without any zero holds two values, which only its weights can show. */
function valuesOf({ type, zeroShare }: TensorSummary, most: number): { values: number; read: boolean } {
  const values = VALUES[type] ?? Number.POSITIVE_INFINITY;
  const read = values === 3 && most < 3 && zeroShare !== undefined;
  return { values: read && zeroShare === 0 ? 2 : values, read };
}

function refusal(kind: Kind, { name, type, zeroShare }: TensorSummary, decidedOn: string): EngineError {
  const types = Object.keys(VALUES).filter((type) => VALUES[type]! <= MOST[kind]);
  const expected = `${types.join(", ")}${kind === "1bit" ? " or a ternary type without zeros" : ""}`;
  const found = decidedOn === "weights" ? `${type} with ${(100 * zeroShare!).toFixed(1)} % zeros` : type;
  const message = `not ${kind}, decided on ${decidedOn === "weights" ? "the weights read" : "the header's types"}`;
  return new EngineError("NotStrict", `${message}: tensor ${name} is ${found}`, {
    tensor: name,
    expected,
    found,
    decidedOn,
  });
}
