/** Numbers and tables for people. */

import type { MemoryNeeds } from "../types/index.ts";

const UNITS: readonly [number, string][] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Three digits and a decimal prefix: `2.10 M`. */
function scaled(value: number): [string, string] {
  // A value that would be rounded up to 1000 is shown in the next unit.
  const [size, prefix] = UNITS.find(([size]) => value >= 0.9995 * size) ?? [1, ""];
  return [prefix ? (value / size).toPrecision(3) : String(Math.round(value)), prefix];
}

export function bytes(value: number): string {
  const [digits, prefix] = scaled(value);
  return `${digits} ${prefix}B`;
}

export function count(value: number): string {
  return scaled(value).join(" ").trim();
}

/** The parts of a model's memory, of which a hybrid alone has states. */
export function memoryText({ total, weights, kv, states, scratch }: MemoryNeeds): string {
  const parts = { weights, "KV cache": kv, ...(states > 0 && { states }), scratch };
  return `${bytes(total)}: ${Object.entries(parts)
    .map(([name, size]) => `${name} ${bytes(size)}`)
    .join(", ")}`;
}

export const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

export const ms = (value: number): string =>
  value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`;

export const plural = (value: number, word: string): string => `${value} ${word}${value === 1 ? "" : "s"}`;

/** One letter of `align` per column: `l` or `r`. The last column is not padded, so its text may be of any width. */
export function table(align: string, rows: readonly (readonly string[])[], indent = "  "): string {
  const widths = [...align].map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (align[i] === "r" ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!))).join("  ");
  return rows.map((row) => `${indent}${line(row)}`.trimEnd()).join("\n");
}
