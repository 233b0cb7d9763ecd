/** Ternary weights that are stored as floats, written as TQ2_0: the same values in 2 bits each. */

import { toHalf } from "../../source/floats.ts";
import type { Range } from "../new_gguf.ts";
import { DENSE } from "./floats.ts";
import type { Weights } from "./weights.ts";

export const TQ2_0 = 35;
/** Values of a block, of which a row has a whole number. */
export const BLOCK = 256;
const BYTES = 66;

/** The range of a dense matrix, encoded while it is read; of rows that move, behind that. */
export function packed({ type }: Pick<Weights, "type">, range: Range): Range {
  const { bytes: size, at: read } = DENSE[type]!;
  const change = (own: Uint8Array) => {
    const bytes = range.change?.(own) ?? own;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const out = new Uint8Array((bytes.length / size / BLOCK) * BYTES);
    for (let block = 0; block * BYTES < out.length; block++) {
      encode((value) => read(view, (block * BLOCK + value) * size), out.subarray(block * BYTES, (block + 1) * BYTES));
    }
    return out;
  };
  const made = (range.length / size / BLOCK) * BYTES;
  // Rows are whole blocks, and so are the units in which they move.
  return { ...range, unit: range.unit ?? size * BLOCK, change, made };
}

/** Byte m of 32 holds the values m, m + 32, m + 64 and m + 96 of 128, low bits first; the scale lies behind the codes. */
function encode(valueAt: (index: number) => number, out: Uint8Array): void {
  let magnitude = 0;
  for (let i = 0; i < BLOCK; i++) {
    const value = valueAt(i);
    if (value !== 0) magnitude = Math.abs(value);
    const [group, within] = [i >> 7, i & 127];
    out[32 * group + (within & 31)]! |= (1 + Math.sign(value)) << (2 * (within >> 5));
  }
  const bits = toHalf(magnitude);
  out[64] = bits & 255;
  out[65] = bits >> 8;
}
