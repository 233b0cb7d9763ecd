/** Writes a GGUF header: metadata and tensor table. */

import { GGUF_BOOL, GGUF_F32, GGUF_I32, GGUF_STRING, GGUF_U32 } from "../text/gguf.ts";
import type { GgufEntry } from "../text/to_gguf.ts";
import { EngineError } from "../types/errors.ts";

/** A metadata pair as bytes: key, type and value. */
export interface RawPair {
  key: string;
  bytes: Uint8Array;
}

export interface TensorEntry {
  name: string;
  /** The length of a row first. */
  dims: number[];
  type: number;
  bytes: number;
}

const VERSION = 3;
const ARRAY = 9;
const ALIGNMENT = 32;
/** Bytes of the types with a fixed width. */
const WIDTHS: Readonly<Record<number, number>> = {
  0: 1,
  1: 1,
  2: 2,
  3: 2,
  4: 4,
  5: 4,
  6: 4,
  7: 1,
  10: 8,
  11: 8,
  12: 8,
};

export interface Layout {
  header: Uint8Array;
  /** Where each tensor begins in the file, and where the last one ends. */
  offsets: number[];
  size: number;
}

export function layOut(pairs: readonly RawPair[], tensors: readonly TensorEntry[], alignment = ALIGNMENT): Layout {
  const aligned = (length: number) => Math.ceil(length / alignment) * alignment;
  const out = new Bytes();
  out.raw(new TextEncoder().encode("GGUF")).u32(VERSION).u64(tensors.length).u64(pairs.length);
  for (const { bytes } of pairs) out.raw(bytes);
  const offsets: number[] = [];
  let end = 0;
  for (const { name, dims, type, bytes } of tensors) {
    offsets.push(aligned(end));
    out.string(name).u32(dims.length);
    for (const dim of dims) out.u64(dim);
    out.u32(type).u64(aligned(end));
    end = aligned(end) + bytes;
  }
  const data = aligned(out.length);
  out.raw(new Uint8Array(data - out.length));
  return { header: out.bytes(), offsets: offsets.map((offset) => data + offset), size: data + aligned(end) };
}

/** Numbers are u32 unless `f32` says otherwise. */
export function rawPair({ key, value }: GgufEntry, f32 = false): RawPair {
  const out = new Bytes().string(key);
  if (typeof value === "string") out.u32(GGUF_STRING).string(value);
  else if (typeof value === "boolean") out.u32(GGUF_BOOL).raw(Uint8Array.of(value ? 1 : 0));
  else if (typeof value === "number") f32 ? out.u32(GGUF_F32).f32(value) : out.u32(GGUF_U32).u32(value);
  else if (value instanceof Float32Array) out.u32(ARRAY).u32(GGUF_F32).u64(value.length).numbers(value);
  else if (value instanceof Int32Array) out.u32(ARRAY).u32(GGUF_I32).u64(value.length).numbers(value);
  else {
    out.u32(ARRAY).u32(GGUF_STRING).u64(value.length);
    for (const text of value) out.string(text);
  }
  return { key, bytes: out.bytes() };
}

/** The metadata pairs of a header that the core has parsed, byte by byte as in the file. */
export function rawPairs(header: Uint8Array): RawPair[] {
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  let at = 8;
  const u32 = () => {
    at += 4;
    return view.getUint32(at - 4, true);
  };
  const u64 = () => {
    at += 8;
    return Number(view.getBigUint64(at - 8, true));
  };
  const skipString = () => {
    const length = u64();
    at += length;
  };
  const skip = (type: number) => {
    if (type === GGUF_STRING) return skipString();
    const width = WIDTHS[type];
    if (width === undefined) throw new EngineError("BadHeader", `unknown metadata type ${type}`, { offset: at });
    at += width;
  };
  u64();
  const pairs: RawPair[] = [];
  for (let left = u64(); left > 0; left--) {
    const from = at;
    skipString();
    const key = new TextDecoder().decode(header.subarray(from + 8, at));
    const type = u32();
    if (type === ARRAY) {
      const element = u32();
      const count = u64();
      const width = WIDTHS[element];
      if (width === undefined) for (let i = 0; i < count; i++) skip(element);
      else at += count * width;
    } else {
      skip(type);
    }
    pairs.push({ key, bytes: header.subarray(from, at) });
  }
  return pairs;
}

const encoder = new TextEncoder();

/** A growing buffer of little-endian fields. */
class Bytes {
  #buffer = new Uint8Array(256);
  length = 0;

  raw(bytes: Uint8Array): this {
    const at = this.#grow(bytes.length);
    this.#buffer.set(bytes, at);
    return this;
  }

  u32(value: number): this {
    const at = this.#grow(4);
    this.#view().setUint32(at, value, true);
    return this;
  }

  f32(value: number): this {
    const at = this.#grow(4);
    this.#view().setFloat32(at, value, true);
    return this;
  }

  u64(value: number): this {
    const at = this.#grow(8);
    this.#view().setBigUint64(at, BigInt(value), true);
    return this;
  }

  string(text: string): this {
    // Encoded in place: an array for each of a vocabulary's hundreds of thousands of tokens would take more memory than all the rest.
    const at = this.#grow(8 + 3 * text.length);
    const { written } = encoder.encodeInto(text, this.#buffer.subarray(at + 8));
    this.#view().setBigUint64(at, BigInt(written), true);
    this.length = at + 8 + written;
    return this;
  }

  numbers(values: Float32Array | Int32Array): this {
    const at = this.#grow(4 * values.length);
    const view = this.#view();
    for (let i = 0; i < values.length; i++) {
      if (values instanceof Int32Array) view.setInt32(at + 4 * i, values[i]!, true);
      else view.setFloat32(at + 4 * i, values[i]!, true);
    }
    return this;
  }

  bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.length);
  }

  #view(): DataView {
    return new DataView(this.#buffer.buffer);
  }

  #grow(more: number): number {
    const at = this.length;
    this.length += more;
    if (this.length > this.#buffer.length) {
      const longer = new Uint8Array(Math.max(this.length, 2 * this.#buffer.length));
      longer.set(this.#buffer.subarray(0, at));
      this.#buffer = longer;
    }
    return at;
  }
}
