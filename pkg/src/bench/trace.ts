/** Decodes what the engine reports of each matrix, and of each operation. */

import type { LayerTime, MatrixTime, TraceRow, TraceValues } from "./report.ts";
import { sum } from "./stats.ts";

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
const ROUNDED = ["int8", "int14", "float", "int4", "int2"];
/** Numbers of a matrix, in the order of the engine's `trace`. */
export const NUMBERS = 18;

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

/** Numbers of a matrix, in the order of the engine's `trace` with streams. */
const TIMED = 3;
/** Numbers of the engine's `trace` with so many streams. */
export interface TimedRun {
  streams: number;
  numbers: readonly number[];
}

/** @param names of the matrices, in the engine's order */
export function matrixTimes(names: readonly string[], runs: readonly TimedRun[]): MatrixTime[] {
  const ways = [...new Set(runs.map(({ streams }) => streams))];
  return names.map((name, i) => {
    const of = (at: number, among: readonly TimedRun[]) =>
      leastMean(among.map(({ numbers }) => numbers[TIMED * i + at]!));
    const ms = of(0, runs);
    // How many streams read fastest depends on the processor.
    const reads = ways.map((way) =>
      of(
        1,
        runs.filter(({ streams }) => streams === way),
      ),
    );
    const readMs = Math.min(...reads);
    const bytes = runs[0]!.numbers[TIMED * i + 2]!;
    const seen = ms > 0 && readMs > 0;
    const unpackShare = seen ? Math.max(0, 1 - readMs / ms) : null;
    return { name, bytes, ms, readMs, unpackShare, gbPerSecond: ms > 0 ? bytes / ms / 1e6 : 0 };
  });
}

const PARTS = 3;

/**
 * The mean of the best third of runs that follow each other: what else the machine did, it did not do all the time. A mean, because some
 * clocks are coarse: a single run is nothing or a tick.
 */
function leastMean(values: readonly number[]): number {
  const size = Math.max(1, Math.floor(values.length / PARTS));
  const parts = Array.from({ length: Math.min(PARTS, values.length) }, (_, i) =>
    values.slice(size * i, size * (i + 1)),
  );
  return Math.min(...parts.map((part) => sum(part) / part.length));
}

/** Numbers of an operation in a profile. */
const PROFILED = 4;
/** The operation that ends a layer. */
const LAST = "down";
/** The operations that stand before the layers of a pass. */
const BEFORE: readonly string[] = ["schedule", "embed"];

/**
 * Times by layer from a profile of single operations (`each`): those of a pass.
 *
 * @param profiles of several runs: the numbers of all operations, again for each that ran
 */
export function layerTimes(profiles: readonly (readonly number[])[], operations: readonly string[]): LayerTime[] {
  const layers = new Map<number | null, Seen>();
  for (const profile of profiles) addRun(layers, profile, operations);
  const rows = [...layers].map(([layer, seen]) => {
    const times = Object.entries(seen).map(([name, { all, bytes }]) => [name, { ms: leastMean(all), bytes }] as const);
    return { layer, operations: Object.fromEntries(times), ms: sum(times.map(([, { ms }]) => ms)) };
  });
  return rows.sort((a, b) => (a.layer ?? Infinity) - (b.layer ?? Infinity));
}

function addRun(layers: Map<number | null, Seen>, profile: readonly number[], operations: readonly string[]): void {
  const width = PROFILED * operations.length;
  let layer = 0;
  let inside = false;
  for (let at = 0; at < profile.length; at += width) {
    for (const [i, name] of operations.entries()) {
      const [calls, ms, bytes] = profile.slice(at + PROFILED * i, at + PROFILED * (i + 1)) as [number, number, number];
      if (calls === 0) continue;
      if (BEFORE.includes(name)) [layer, inside] = [0, true];
      else if (name === "head" || name === "settle") inside = false;
      note(layers, inside && !BEFORE.includes(name) ? layer : null, name, { ms, bytes });
      if (name === LAST) layer++;
    }
  }
}

/** An operation of a layer: its milliseconds in every pass, and the bytes that it read in the last one. */
type Seen = Record<string, { all: number[]; bytes: number }>;

function note(
  layers: Map<number | null, Seen>,
  layer: number | null,
  name: string,
  { ms, bytes }: { ms: number; bytes: number },
): void {
  const seen = layers.get(layer) ?? {};
  layers.set(layer, seen);
  const operation = seen[name] ?? { all: [], bytes };
  seen[name] = operation;
  operation.all.push(ms);
  operation.bytes = bytes;
}
