/** `general.size_label`: a model's number of parameters as converters write it, `1.4M` or `135M`. */

import { type GgufTensor, valuesOf } from "./gguf.ts";

export const SIZE_LABEL = "general.size_label";

const UNITS: readonly (readonly [string, number])[] = [
  ["T", 1e12],
  ["B", 1e9],
  ["M", 1e6],
  ["K", 1e3],
];

export const parameters = (tensors: readonly Pick<GgufTensor, "dims">[]): number =>
  tensors.reduce((sum, tensor) => sum + valuesOf(tensor), 0);

/** Two digits at least. */
export function sizeLabel(count: number): string {
  const [unit, size] = UNITS.find(([, size]) => count >= size) ?? UNITS.at(-1)!;
  const value = count / size;
  return `${value.toFixed(Math.round(value) < 10 ? 1 : 0)}${unit}`;
}

/** The numbers that a label may stand for; null for a text that is none. */
export function labelled(label: unknown): { least: number; most: number } | null {
  const [, digits, decimals = "", unit] = /^(\d+)(?:\.(\d+))?([TBMK])$/.exec(String(label)) ?? [];
  const size = UNITS.find(([name]) => name === unit)?.[1];
  if (digits === undefined || size === undefined) return null;
  const value = Number(`${digits}.${decimals || "0"}`) * size;
  const half = (0.5 * size) / 10 ** decimals.length;
  return { least: value - half, most: value + half };
}
