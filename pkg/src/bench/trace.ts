/** Decodes what the engine reports of each matrix. */

import type { TraceRow, TraceValues } from "./report.ts";

/** GGUF's names of an operation's matrices. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  qkv: ["attn_q", "attn_k", "attn_v"],
  output: ["attn_output"],
  gate_up: ["ffn_gate", "ffn_up"],
  down: ["ffn_down"],
};
/** The same of a gated delta net, which is told by its four first matrices. */
const DELTA_NET: typeof NAMES = {
  ...NAMES,
  qkv: ["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"],
  output: ["ssm_out"],
};
const ROUNDED = ["int8", "int14", "float"];
/** Numbers of a matrix, in the order of the engine's `trace`. */
const NUMBERS = 18;

/** @param operations the engine's, in its order */
export function traceRows(told: readonly number[], operations: readonly string[]): TraceRow[] {
  const deltaNets = new Set<number>();
  for (let at = 0; at < told.length; at += NUMBERS) {
    if (operations[told[at + 1]!] === "qkv" && told[at + 2] === 3) deltaNets.add(told[at]!);
  }
  return Array.from({ length: told.length / NUMBERS }, (_, i) => {
    const row = told.slice(i * NUMBERS, (i + 1) * NUMBERS);
    const [layer, operation, index, rows, cols, bits, group, scaleBits, minima, rounded] = row as Numbers;
    const name =
      layer < 0
        ? "output"
        : `blk.${layer}.${(deltaNets.has(layer) ? DELTA_NET : NAMES)[operations[operation]!]![index]}`;
    return {
      name,
      rows,
      cols,
      bits,
      scales: scales(group, scaleBits, minima > 0),
      activations: ROUNDED[rounded]!,
      input: values(row.slice(10, 14)),
      output: values(row.slice(14)),
    };
  });
}

type Numbers = [number, number, number, number, number, number, number, number, number, number];

function scales(group: number, bits: number, minima: boolean): string {
  if (group < 0) return "none";
  if (group === 0) return "one a row";
  const kind = bits > 0 ? `f${bits}` : "8 bits";
  return `${kind} for ${group}${minima ? ", with minima" : ""}`;
}

function values(numbers: readonly number[]): TraceValues {
  const [min, max, rms, nan] = numbers as [number, number, number, number];
  return { min, max, rms, nan };
}
