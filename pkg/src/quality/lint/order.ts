/** The order of I2_S codes: 128 values in 32 bytes, as nearly all readers take for granted, or 64 in 16. */

import type { Description } from "../../types/index.ts";
import { type Gguf, I2S_TAIL, isI2s } from "../gguf.ts";
import { kept, type NewTensor, whole } from "../new_gguf.ts";
import type { Finding } from "./finding.ts";

export interface OrderFinding extends Finding {
  reordered: true;
}

export function checkOrder({ i2s }: Description): OrderFinding[] {
  if (i2s?.from !== "weights" || i2s.interleave !== "64") return [];
  return [
    {
      rule: "i2s-order",
      level: "error",
      reordered: true,
      message:
        "by its weights the I2_S codes lie in groups of 64, as builds for ARM wrote them; expected groups of 128",
      advice: "reorder the codes, as --fix does; here --i2s 64 reads them as they are",
      fixable: true,
    },
  ];
}

/** Whether neither the size nor the weights have told the order. */
export const isUndecided = ({ i2s }: Description): boolean => i2s?.from === "default";

const GROUP = 32;

/** 128 codes in two groups of 64 become one group of 128. */
export function regroup(bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(bytes.length);
  for (let at = 0; at + GROUP <= bytes.length; at += GROUP) {
    for (let value = 0; value < 128; value++) {
      const [half, within] = [value >> 6, value & 63];
      const code = (bytes[at + 16 * half + (within & 15)]! >> (6 - 2 * (within >> 4))) & 3;
      out[at + (value & 31)]! |= code << (6 - 2 * (value >> 5));
    }
  }
  return out;
}

export function reordered(gguf: Gguf): NewTensor[] {
  return gguf.tensors.map((tensor) => {
    if (!isI2s(tensor)) return kept(tensor, [whole(tensor)]);
    const { file, offset, bytes } = tensor;
    const codes = bytes - I2S_TAIL;
    return kept(tensor, [
      { file, offset, length: codes, unit: GROUP, change: regroup },
      { file, offset: offset + codes, length: I2S_TAIL },
    ]);
  });
}
