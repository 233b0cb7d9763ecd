/** The weights of a model as a check reads them: codes counted, scales listed, floats looked through, each byte once. */

import { half, toHalf } from "../../source/floats.ts";
import { DENSE } from "./floats.ts";

/** A matrix or vector to look through. Shapes are as GGUF has them, the row's length first. */
export interface Weights {
  name: string;
  /** The layer that it belongs to. */
  layer: number | null;
  /** What it is, without its layer: `attn_q.weight`. */
  stem: string;
  type: string;
  dims: readonly number[];
  /** Of Hugging Face's packed codes: the scale that lies in a tensor of its own. */
  scale?: number;
  stream(signal?: AbortSignal): AsyncIterable<Uint8Array>;
}

/** Where a block's scale lies, and which of its bytes hold codes. */
interface Codes {
  bytes: number;
  /** Of the f16 in a block; null where the scale lies elsewhere. */
  scale: number | null;
  /** Ranges of code bytes, with how the codes of one byte are told. */
  ranges: readonly { from: number; to: number; kind: Kind }[];
}

type Kind = "pairs" | "bits" | "trits5" | "trits4";

const whole = (bytes: number, scale: number | null, from: number, to: number, kind: Kind): Codes => ({
  bytes,
  scale,
  ranges: [{ from, to, kind }],
});

const CODES: Readonly<Record<string, Codes>> = {
  TQ1_0: {
    bytes: 54,
    scale: 52,
    ranges: [
      { from: 0, to: 48, kind: "trits5" },
      { from: 48, to: 52, kind: "trits4" },
    ],
  },
  PTQ1_0: {
    bytes: 28,
    scale: 26,
    ranges: [
      { from: 0, to: 24, kind: "trits5" },
      { from: 24, to: 26, kind: "trits4" },
    ],
  },
  TQ2_0: whole(66, 64, 0, 64, "pairs"),
  Q2_0: whole(18, 0, 2, 18, "pairs"),
  PQ2_0: whole(34, 0, 2, 34, "pairs"),
  Q1_0: whole(18, 0, 2, 18, "bits"),
  I2_S: whole(32, null, 0, 32, "pairs"),
  U8x4: whole(1, null, 0, 1, "pairs"),
};

/** Bytes of a block and where its f16 scales lie, of types with codes of more than two bits. */
const OTHERS: Readonly<Record<string, { bytes: number; scales: readonly number[] }>> = {
  Q4_0: { bytes: 18, scales: [0] },
  Q4_1: { bytes: 20, scales: [0, 2] },
  Q5_0: { bytes: 22, scales: [0] },
  Q5_1: { bytes: 24, scales: [0, 2] },
  Q8_0: { bytes: 34, scales: [0] },
  Q2_K: { bytes: 84, scales: [80, 82] },
  Q3_K: { bytes: 110, scales: [108] },
  Q4_K: { bytes: 144, scales: [0, 2] },
  Q5_K: { bytes: 176, scales: [0, 2] },
  Q6_K: { bytes: 210, scales: [208] },
};

/** How many of each code a byte holds: four counts for each of the 256 bytes. */
function counts(codesOf: (byte: number) => number[]): Uint8Array {
  const table = new Uint8Array(1024);
  for (let byte = 0; byte < 256; byte++) for (const code of codesOf(byte)) table[4 * byte + code]!++;
  return table;
}

const trits = (digits: number) => (byte: number) =>
  Array.from({ length: digits }, (_, n) => (((byte * 3 ** n) & 255) * 3) >> 8);

const TABLES: Readonly<Record<Kind, Uint8Array>> = {
  pairs: counts((byte) => [0, 2, 4, 6].map((shift) => (byte >> shift) & 3)),
  bits: counts((byte) => Array.from({ length: 8 }, (_, i) => (byte >> i) & 1)),
  trits5: counts(trits(5)),
  trits4: counts(trits(4)),
};

/** The code that stands for the weight 0, and how many codes a type has. */
export const isBinary = (type: string): boolean => type === "Q1_0";

export interface Seen {
  /** How often each code occurs; null of other types. */
  codes: [number, number, number, number] | null;
  /** Of each block, or of the whole tensor; empty for floats. */
  scales: Float32Array;
  /** Blocks whose scale is zero though their codes are not. */
  lost: number[];
  /** The first values that are no numbers, by place. */
  broken: number[];
  /** Of floats: whether every value is zero. */
  zero: boolean;
  /** Of a matrix of floats: whether every row holds nothing but zero and one magnitude. */
  threeValues: boolean;
  /** Whether the magnitudes of all rows are f16 numbers. */
  halves: boolean;
}

/** Whether there is something to see in a tensor of this type. */
export const isKnown = (type: string): boolean => type in CODES || type in OTHERS || isDense(type);
export const isDense = (type: string): boolean => type in DENSE;
export const hasCodes = (type: string): boolean => type in CODES;

export async function look(weights: Weights, signal?: AbortSignal): Promise<Seen> {
  const { type } = weights;
  if (isDense(type)) return lookAtFloats(weights, signal);
  const codes = CODES[type];
  return codes ? lookAtCodes(weights, codes, signal) : lookAtScales(weights, OTHERS[type]!, signal);
}

const MAX_NAMED = 8;
const nothing = (): Seen => ({
  codes: null,
  scales: new Float32Array(),
  lost: [],
  broken: [],
  zero: false,
  threeValues: false,
  halves: true,
});

async function lookAtCodes(weights: Weights, form: Codes, signal?: AbortSignal): Promise<Seen> {
  const { type, dims } = weights;
  const values = dims.reduce((all, dim) => all * dim, 1);
  const flat = form.scale === null;
  const length = flat ? values / 4 : 0;
  const seen = { ...nothing(), codes: [0, 0, 0, 0] as [number, number, number, number] };
  const scales: number[] = [];
  let [block, bytes, tail] = [0, 0, new Uint8Array()];
  for await (const piece of blocks(weights, flat ? 1 : form.bytes, signal)) {
    if (flat) {
      const own = Math.max(0, Math.min(piece.length, length - bytes));
      tally(seen.codes, piece, 0, own, "pairs");
      if (own < piece.length) tail = joined(tail, piece.subarray(own));
      bytes += piece.length;
      continue;
    }
    const view = new DataView(piece.buffer, piece.byteOffset, piece.byteLength);
    for (let at = 0; at < piece.length; at += form.bytes, block++) {
      const scale = half(view.getUint16(at + form.scale!, true));
      scales.push(scale);
      const before = [...seen.codes];
      for (const { from, to, kind } of form.ranges) tally(seen.codes, piece, at + from, at + to, kind);
      const nonzero = type === "Q1_0" || seen.codes.some((count, code) => code !== 1 && count > before[code]!);
      if (scale === 0 && nonzero) seen.lost.push(block);
      if (!Number.isFinite(scale) && seen.broken.length < MAX_NAMED) seen.broken.push(block);
    }
  }
  if (type === "I2_S")
    scales.push(tail.length >= 4 ? new DataView(tail.buffer, tail.byteOffset).getFloat32(0, true) : Number.NaN);
  if (weights.scale !== undefined) scales.push(weights.scale);
  if (flat && scales.some((scale) => !Number.isFinite(scale))) seen.broken.push(0);
  if (flat && scales.includes(0)) seen.lost.push(0);
  return { ...seen, scales: Float32Array.from(scales) };
}

function tally(into: number[], bytes: Uint8Array, from: number, to: number, kind: Kind): void {
  const table = TABLES[kind];
  let [a, b, c, d] = [0, 0, 0, 0];
  for (let i = from; i < to; i++) {
    const at = 4 * bytes[i]!;
    a += table[at]!;
    b += table[at + 1]!;
    c += table[at + 2]!;
    d += table[at + 3]!;
  }
  into[0]! += a;
  into[1]! += b;
  into[2]! += c;
  into[3]! += d;
}

async function lookAtScales(
  weights: Weights,
  { bytes, scales: places }: { bytes: number; scales: readonly number[] },
  signal?: AbortSignal,
): Promise<Seen> {
  const seen = nothing();
  let block = 0;
  for await (const piece of blocks(weights, bytes, signal)) {
    const view = new DataView(piece.buffer, piece.byteOffset, piece.byteLength);
    for (let at = 0; at < piece.length; at += bytes, block++) {
      const fine = places.every((place) => (view.getUint16(at + place, true) & 0x7c00) !== 0x7c00);
      if (!fine && seen.broken.length < MAX_NAMED) seen.broken.push(block);
    }
  }
  return seen;
}

async function lookAtFloats(weights: Weights, signal?: AbortSignal): Promise<Seen> {
  const { type, dims } = weights;
  const { bytes, at: read } = DENSE[type]!;
  const columns = dims[0]!;
  const seen = { ...nothing(), zero: true, threeValues: dims.length > 1 };
  let [place, magnitude] = [0, 0];
  for await (const piece of blocks(weights, bytes, signal)) {
    const view = new DataView(piece.buffer, piece.byteOffset, piece.byteLength);
    for (let at = 0; at < piece.length; at += bytes, place++) {
      const value = read(view, at);
      if (place % columns === 0) magnitude = 0;
      if (value === 0) continue;
      seen.zero = false;
      if (!Number.isFinite(value) && seen.broken.length < MAX_NAMED) seen.broken.push(place);
      const size = Math.abs(value);
      if (magnitude === 0) {
        magnitude = size;
        seen.halves &&= half(toHalf(size)) === size;
      } else if (magnitude !== size) seen.threeValues = false;
    }
  }
  seen.threeValues &&= !seen.zero;
  return seen;
}

/** A tensor's bytes in pieces of whole blocks. */
async function* blocks(weights: Weights, block: number, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  let rest: Uint8Array = new Uint8Array();
  for await (const bytes of weights.stream(signal)) {
    const all = rest.length > 0 ? joined(rest, bytes) : bytes;
    const end = all.length - (all.length % block);
    if (end > 0) yield all.subarray(0, end);
    rest = all.slice(end);
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
