/** The text metadata of a GGUF file as the core hands it over: scalars decoded, arrays as ranges of the header's bytes. */

import { EngineError } from "../types/errors.ts";

/** An array in the header: elements of one GGUF type, `length` bytes from `offset`. */
export interface GgufArray {
  /** As in the file: 4 is u32, 5 i32, 6 f32, 8 string. */
  elementType: number;
  count: number;
  offset: number;
  length: number;
}

export interface GgufText {
  get(key: string): string | number | boolean | undefined;
  array(key: string): GgufArray | undefined;
  header: Uint8Array;
}

export const GGUF_U32 = 4;
export const GGUF_I32 = 5;
export const GGUF_F32 = 6;
export const GGUF_BOOL = 7;
export const GGUF_STRING = 8;

/** The strings of an array, or null where the key is absent. `max` bounds their number. */
export function readStrings(text: GgufText, key: string, max: number): string[] | null {
  const array = find(text, key, max);
  if (!array) return null;
  if (array.elementType !== GGUF_STRING) throw wrongType(key, "strings (8)", array.elementType);

  // One decode call for all strings is several times faster than one for each: gather the bytes without their length
  // prefixes, note where each string ends in UTF-16 units, decode, cut.
  const bytes = text.header.subarray(array.offset, array.offset + array.length);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const gathered = new Uint8Array(bytes.length);
  const ends = new Uint32Array(array.count);
  let at = 0;
  let filled = 0;
  let units = 0;
  for (let i = 0; i < array.count; i++) {
    if (bytes.length - at < 8) throw truncated(key, array, at);
    const length = view.getUint32(at, true);
    if (view.getUint32(at + 4, true) !== 0 || length > bytes.length - at - 8) throw truncated(key, array, at);
    const end = at + 8 + length;
    at += 8;
    if (length > 0 && (view.getUint8(at) & 0xc0) === 0x80) throw notUtf8(key, i);
    for (; at < end; at++) {
      const byte = view.getUint8(at);
      gathered[filled++] = byte;
      if ((byte & 0xc0) !== 0x80) units += byte >= 0xf0 ? 2 : 1;
    }
    ends[i] = units;
  }

  let all: string;
  try {
    all = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(gathered.subarray(0, filled));
  } catch {
    throw notUtf8(key, null);
  }
  const strings = new Array<string>(array.count);
  let start = 0;
  for (let i = 0; i < strings.length; i++) {
    const end = ends[i] as number;
    strings[i] = all.slice(start, end);
    start = end;
  }
  return strings;
}

/** The numbers of an i32, u32 or f32 array, or null where the key is absent. */
export function readNumbers(text: GgufText, key: string, max: number): Float64Array | null {
  const array = find(text, key, max);
  if (!array) return null;
  const { elementType, count, offset, length } = array;
  if (elementType !== GGUF_I32 && elementType !== GGUF_U32 && elementType !== GGUF_F32) {
    throw wrongType(key, "u32 (4), i32 (5) or f32 (6)", elementType);
  }
  if (length < 4 * count) throw truncated(key, array, length);
  const view = new DataView(text.header.buffer, text.header.byteOffset + offset, length);
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    numbers[i] =
      elementType === GGUF_F32
        ? view.getFloat32(4 * i, true)
        : elementType === GGUF_I32
          ? view.getInt32(4 * i, true)
          : view.getUint32(4 * i, true);
  }
  return numbers;
}

function find(text: GgufText, key: string, max: number): GgufArray | undefined {
  const array = text.array(key);
  if (!array) return undefined;
  if (array.count > max) {
    throw new EngineError("BadTokenizer", `${key}: ${array.count} elements, more than the ${max} allowed`, {
      key,
      expected: `at most ${max} elements`,
      found: String(array.count),
    });
  }
  const whole = [array.count, array.offset, array.length].every(
    (number) => Number.isSafeInteger(number) && number >= 0,
  );
  if (!whole || array.offset + array.length > text.header.length) throw truncated(key, array, 0);
  return array;
}

function wrongType(key: string, expected: string, found: number): EngineError {
  return new EngineError("BadTokenizer", `${key}: expected an array of ${expected}, got element type ${found}`, {
    key,
    expected,
    found: String(found),
  });
}

function truncated(key: string, array: GgufArray, at: number): EngineError {
  return new EngineError("BadTokenizer", `${key}: ${array.count} elements do not fit its ${array.length} bytes`, {
    key,
    offset: array.offset + at,
  });
}

function notUtf8(key: string, index: number | null): EngineError {
  const where = index === null ? "" : ` (element ${index})`;
  return new EngineError("BadTokenizer", `${key}: a string is not UTF-8${where}`, { key });
}
