/** Keys and values as they lie in the cache: what their distribution and their codes say. See `src/kernels/rows`. */

import { half } from "../source/floats.ts";

/** Positions of a block. */
const BLOCK = 32;
const BINS = 64;
/** The bins cover so many deviations on either side of zero; what lies beyond is in the last bin. */
const REACH = 4;
/** The median magnitude of values whose standard deviation is 1, where they are normally distributed. */
const MEDIAN = 0.6745;

/** In the order of the engine's codecs. */
const CODECS = ["f32", "f16", "fp8", "q8", "q4", "q2"] as const;
type Codec = (typeof CODECS)[number];
const BITS: Record<Codec, number> = { f32: 32, f16: 16, fp8: 8, q8: 8, q4: 4, q2: 2 };

export interface KvPlaces {
  layers: number;
  heads: number;
  dim: number;
  codec: Codec;
  conversations: { positions: number; blocks: number[] }[];
}

/** Reads what `watch(1)` says. */
export function placesOf(numbers: Float64Array): KvPlaces {
  const [layers, heads, dim, codec] = numbers as unknown as [number, number, number, number];
  const conversations: KvPlaces["conversations"] = [];
  for (let at = 4; at < numbers.length; ) {
    const [positions, count] = [numbers[at]!, numbers[at + 1]!];
    conversations.push({ positions, blocks: [...numbers.subarray(at + 2, at + 2 + count)] });
    at += 2 + count;
  }
  return { layers, heads, dim, codec: CODECS[codec]!, conversations };
}

/** 32-bit words of a block of one head. */
function headWords(codec: Codec, dim: number): number {
  const params = codec === "f32" || codec === "f16" ? 0 : codec === "fp8" ? 2 : 3;
  return 2 * dim * BITS[codec] + (params * BLOCK) / 2;
}

export interface HeadRows {
  keys: Float32Array;
  values: Float32Array;
  /** Codes at their limit, and all. */
  limit: number;
  codes: number;
}

/** The first `count` positions of a head's block, in any order. */
export function readHead(
  buffer: ArrayBufferLike,
  { heads, dim, codec }: KvPlaces,
  block: number,
  [layer, head]: readonly [number, number],
  count: number,
): HeadRows {
  const words = headWords(codec, dim);
  const at = block + 4 * (layer * heads + head) * words;
  const codeBytes = 4 * dim * BITS[codec];
  const part = (keys: boolean) => (keys ? at : at + codeBytes);
  const rows: HeadRows = {
    keys: new Float32Array(count * dim),
    values: new Float32Array(count * dim),
    limit: 0,
    codes: 0,
  };
  const scales = new Uint16Array(buffer, at + 2 * codeBytes, codec === "f32" || codec === "f16" ? 0 : 2 * BLOCK);
  const word = new Uint32Array(1);
  const float = new Float32Array(word.buffer);
  const bf16 = (bits: number) => {
    word[0] = bits << 16;
    return float[0]!;
  };
  for (const keys of [true, false]) {
    const read = reader(codec, buffer, part(keys), dim, keys);
    const out = keys ? rows.keys : rows.values;
    for (let position = 0; position < count; position++) {
      const scale = scales.length > 0 ? bf16(scales[(keys ? 0 : BLOCK) + position]!) : 1;
      for (let d = 0; d < dim; d++) {
        out[position * dim + d] = read.value(position, d) * scale;
      }
    }
    rows.limit += read.limit;
  }
  rows.codes = 2 * count * dim;
  return rows;
}

interface Reader {
  /** A code's value without the scale. */
  value(position: number, d: number): number;
  /** Values at their limit so far. */
  limit: number;
}

function reader(codec: Codec, buffer: ArrayBufferLike, at: number, dim: number, keys: boolean): Reader {
  const flat = (position: number, d: number) => (keys ? d * BLOCK + position : position * dim + d);
  if (codec === "f32") {
    const values = new Float32Array(buffer, at, BLOCK * dim);
    return { value: (position, d) => values[flat(position, d)]!, limit: 0 };
  }
  if (codec === "f16") {
    const halves = new Uint16Array(buffer, at, BLOCK * dim);
    const found: Reader = {
      value(position, d) {
        const bits = halves[flat(position, d)]!;
        if ((bits & 0x7fff) === MAX_HALF) found.limit++;
        return half(bits);
      },
      limit: 0,
    };
    return found;
  }
  const codes = new Uint8Array(buffer, at, (BLOCK * dim * BITS[codec]) / 8);
  return codec === "fp8" ? readFp8(codes, flat) : readInts(codec, codes, dim, keys);
}

function readFp8(codes: Uint8Array, flat: (position: number, d: number) => number): Reader {
  const found: Reader = {
    value(position, d) {
      const code = codes[flat(position, d)]!;
      if ((code & 127) === 127) found.limit++;
      const magnitude = 2 ** (((code >> 3) & 15) - 7) * (1 + (code & 7) / 8);
      return code & 128 ? -magnitude : magnitude;
    },
    limit: 0,
  };
  return found;
}

function readInts(codec: Codec, codes: Uint8Array, dim: number, keys: boolean): Reader {
  const bits = BITS[codec];
  const per = 8 / bits;
  const level = codec === "q8" ? Math.min(127, Math.floor(32767 / dim)) : codec === "q4" ? 15 : 3;
  const found: Reader = {
    value(position, d) {
      const lane = keys ? 4 * (position % 4) + (d % 4) : 4 * (d % 4) + (position % 4);
      const group = position >> 2;
      const byte = codes[(d >> 2) * ((BLOCK * 4) / per) + Math.floor(group / per) * 16 + lane]!;
      const code = (byte >> (bits * (group % per))) & (2 ** bits - 1);
      const value = codec === "q8" ? (code << 24) >> 24 : 2 * code - level;
      if (Math.abs(value) >= level) found.limit++;
      return value;
    },
    limit: 0,
  };
  return found;
}

/** The largest finite number of 16 bits, without its sign. */
const MAX_HALF = 0x7bff;

/** The deviation of values, by their median: a position that is unlike all others does not count. 0 where most are. */
export function deviation(values: Float32Array): number {
  const sorted = values.map(Math.abs).sort();
  return sorted[sorted.length >> 1]! / MEDIAN;
}

/**
 * Bits of what positions do not have in common, in bins that a scale fixes: 0 where each holds the same, 5.05 where they differ as normally
 * distributed values of that deviation do. Infinity is none.
 */
export function entropy(values: Float32Array, dim: number, scale: number): number {
  if (!(scale > 0 && scale < Infinity)) return 0;
  const count = values.length / dim;
  const bins = new Uint32Array(BINS);
  const perBin = (2 * REACH * scale) / BINS;
  for (let d = 0; d < dim; d++) {
    let sum = 0;
    for (let position = 0; position < count; position++) sum += values[position * dim + d]!;
    for (let position = 0; position < count; position++) {
      const bin = Math.floor((values[position * dim + d]! - sum / count) / perBin + BINS / 2);
      bins[Math.min(BINS - 1, Math.max(0, bin))]!++;
    }
  }
  const { length } = values;
  return bins.reduce((bits, found) => (found > 0 ? bits - (found / length) * Math.log2(found / length) : bits), 0);
}
