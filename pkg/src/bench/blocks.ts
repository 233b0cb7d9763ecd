/** Storage types as ggml writes them, filled with random values of a size that weights have. */

export interface BlockType {
  /** The type's number in ggml. */
  id: number;
  /** Values and bytes of a block. */
  values: number;
  bytes: number;
  /** The values that a byte may have; any value where it is absent. */
  codes?: readonly number[];
  /** 16-bit fields at fixed places of a block: scales, minima. */
  halves?: Readonly<Record<number, number>>;
  /** Whether these differ by block, up to a sixteenth: a row whose scales are all the same is packed with one. */
  varied?: boolean;
  /** Bytes of a block that must stay small: scales of groups. */
  small?: readonly [from: number, to: number];
  /** For floats: how a number from -1 to 1 is written. */
  write?(view: DataView, offset: number, value: number): void;
  /** Bytes behind a tensor: its scale. */
  tail?: Uint8Array<ArrayBuffer>;
}

/** Halves: 2^-5, 2^-11 and 2^-14. */
const [LARGE, MIDDLE, SMALL] = [0x2800, 0x1000, 0x0400];

const range = (count: number) => Array.from({ length: count }, (_, i) => i);
/** Bytes of four codes from 0 to 2. */
const pairs = range(256).filter((byte) => [0, 2, 4, 6].every((shift) => ((byte >> shift) & 3) < 3));
/** Bytes of five digits to base 3. */
const trits = range(243).map((number) => Math.ceil((number * 256) / 243));

const i2sTail = () => {
  const tail = new Uint8Array(32);
  new DataView(tail.buffer).setFloat32(0, 2 ** -5, true);
  return tail;
};

export const blockTypes: Readonly<Record<string, BlockType>> = {
  f32: { id: 0, values: 1, bytes: 4, write: (view, at, value) => view.setFloat32(at, value / 16, true) },
  // A sign, and 2^-6 to 2^-5.
  f16: { id: 1, values: 1, bytes: 2, write: (view, at, value) => view.setUint16(at, half(value, 0x2400, 0x3ff), true) },
  bf16: {
    id: 30,
    values: 1,
    bytes: 2,
    write: (view, at, value) => view.setUint16(at, half(value, 0x3c80, 0x7f), true),
  },
  q4_0: { id: 2, values: 32, bytes: 18, halves: { 0: MIDDLE } },
  q4_1: { id: 3, values: 32, bytes: 20, halves: { 0: MIDDLE, 2: 0x8000 | MIDDLE } },
  q8_0: { id: 8, values: 32, bytes: 34, halves: { 0: SMALL } },
  q4_k: { id: 12, values: 256, bytes: 144, halves: { 0: SMALL, 2: SMALL } },
  q6_k: { id: 14, values: 256, bytes: 210, halves: { 208: MIDDLE }, small: [192, 208] },
  tq1_0: { id: 34, values: 256, bytes: 54, codes: trits, halves: { 52: LARGE } },
  tq2_0: { id: 35, values: 256, bytes: 66, codes: pairs, halves: { 64: LARGE } },
  i2_s: { id: 36, values: 4, bytes: 1, codes: pairs, tail: i2sTail() },
  q1_0: { id: 41, values: 128, bytes: 18, halves: { 0: LARGE }, varied: true },
  q2_0: { id: 42, values: 64, bytes: 18, codes: pairs, halves: { 0: LARGE }, varied: true },
  pq2_0: { id: 142, values: 128, bytes: 34, codes: pairs, halves: { 0: LARGE }, varied: true },
  ptq1_0: { id: 143, values: 128, bytes: 28, codes: trits, halves: { 26: LARGE }, varied: true },
};

const half = (value: number, exponent: number, mantissa: number) =>
  (value < 0 ? 0x8000 : 0) | exponent | Math.floor(Math.abs(value) * mantissa);

/** Makes some whole blocks of random values. */
export function randomBlocks(type: BlockType, blocks: number, random: () => number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(blocks * type.bytes);
  const view = new DataView(bytes.buffer);
  const { write, codes, halves = {}, varied = false, small } = type;
  if (write) {
    for (let at = 0; at < bytes.length; at += type.bytes) write(view, at, random() * 2 ** -31 - 1);
    return bytes;
  }
  for (let at = 0; at < bytes.length; at++) bytes[at] = codes ? codes[random() % codes.length]! : random() >>> 24;
  for (let block = 0; block < bytes.length; block += type.bytes) {
    for (const [at, half] of Object.entries(halves)) {
      view.setUint16(block + Number(at), half + (varied ? random() >>> 26 : 0), true);
    }
    if (small) for (let at = small[0]; at < small[1]; at++) bytes[block + at]! &= 7;
  }
  return bytes;
}

/** A generator of 32 random bits at a time (xorshift); the same seed gives the same bits. */
export function randomBits(seed: number): () => number {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}
