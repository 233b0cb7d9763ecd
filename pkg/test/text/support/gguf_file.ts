/** A GGUF header, read and written plainly: what the core does, small enough to check by eye. */

import type { GgufArray, GgufText } from "../../../src/text/gguf.ts";
import type { GgufEntry } from "../../../src/text/to_gguf.ts";

const SIZES: Record<number, number> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };

export function parseGguf(bytes: Uint8Array): GgufText {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const scalars = new Map<string, string | number | boolean>();
  const arrays = new Map<string, GgufArray>();
  let at = 8 + 8;
  const u64 = () => {
    at += 8;
    return Number(view.getBigUint64(at - 8, true));
  };
  const u32 = () => {
    at += 4;
    return view.getUint32(at - 4, true);
  };
  const string = () => {
    const length = u64();
    at += length;
    return new TextDecoder().decode(bytes.subarray(at - length, at));
  };
  const scalar = (type: number): string | number | boolean => {
    if (type === 8) return string();
    const from = at;
    at += SIZES[type] as number;
    if (type === 0) return view.getUint8(from);
    if (type === 1) return view.getInt8(from);
    if (type === 2) return view.getUint16(from, true);
    if (type === 3) return view.getInt16(from, true);
    if (type === 4) return view.getUint32(from, true);
    if (type === 5) return view.getInt32(from, true);
    if (type === 6) return view.getFloat32(from, true);
    if (type === 7) return view.getUint8(from) !== 0;
    if (type === 12) return view.getFloat64(from, true);
    return Number(type === 10 ? view.getBigUint64(from, true) : view.getBigInt64(from, true));
  };
  for (let left = u64(); left > 0; left--) {
    const key = string();
    const type = u32();
    if (type !== 9) {
      scalars.set(key, scalar(type));
      continue;
    }
    const elementType = u32();
    const count = u64();
    const offset = at;
    for (let i = 0; i < count; i++) scalar(elementType);
    arrays.set(key, { elementType, count, offset, length: at - offset });
  }
  return { get: (key) => scalars.get(key), array: (key) => arrays.get(key), header: bytes.subarray(0, at) };
}

/** A header with these entries and no tensors. */
export function writeGguf(entries: readonly GgufEntry[]): Uint8Array {
  const parts: Uint8Array[] = [];
  const bytes = (length: number, fill: (view: DataView) => void) => {
    const part = new Uint8Array(length);
    fill(new DataView(part.buffer));
    parts.push(part);
  };
  const u32 = (value: number) => bytes(4, (view) => view.setUint32(0, value, true));
  const u64 = (value: number) => bytes(8, (view) => view.setBigUint64(0, BigInt(value), true));
  const string = (text: string) => {
    const utf8 = new TextEncoder().encode(text);
    u64(utf8.length);
    parts.push(utf8);
  };
  parts.push(new TextEncoder().encode("GGUF"));
  u32(3);
  u64(0);
  u64(entries.length);
  for (const { key, value } of entries) {
    string(key);
    if (typeof value === "string") {
      u32(8);
      string(value);
    } else if (typeof value === "number") {
      u32(4);
      u32(value);
    } else if (typeof value === "boolean") {
      u32(7);
      bytes(1, (view) => view.setUint8(0, value ? 1 : 0));
    } else {
      u32(9);
      u32(value instanceof Float32Array ? 6 : value instanceof Int32Array ? 5 : 8);
      u64(value.length);
      for (const element of value) {
        if (typeof element === "string") string(element);
        else if (value instanceof Float32Array) bytes(4, (view) => view.setFloat32(0, element, true));
        else bytes(4, (view) => view.setInt32(0, element as number, true));
      }
    }
  }
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
