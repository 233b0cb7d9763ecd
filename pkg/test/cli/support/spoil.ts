/** Model files with one thing wrong. */

import { parseGguf } from "../../text/support/gguf_file.ts";

const view = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

interface Entry {
  /** Where its name begins. */
  name: number;
  /** Where its type and its offset stand. */
  type: number;
  offset: number;
}

/** The table of a GGUF file's tensors, and where its data begin. */
function table(bytes: Uint8Array): { tensors: Map<string, Entry>; data: number } {
  const numbers = view(bytes);
  let at = parseGguf(bytes).header.length;
  const tensors = new Map<string, Entry>();
  for (let left = Number(numbers.getBigUint64(8, true)); left > 0; left--) {
    const length = Number(numbers.getBigUint64(at, true));
    const name = at + 8;
    const dimensions = numbers.getUint32(name + length, true);
    const type = name + length + 4 + 8 * dimensions;
    tensors.set(new TextDecoder().decode(bytes.subarray(name, name + length)), { name, type, offset: type + 4 });
    at = type + 4 + 8;
  }
  return { tensors, data: Math.ceil(at / 32) * 32 };
}

function entry(bytes: Uint8Array, tensor: string): Entry {
  const found = table(bytes).tensors.get(tensor);
  if (!found) throw new Error(`no tensor ${tensor}`);
  return found;
}

/** Where the data of a GGUF file begin, and of one of its tensors. */
export const dataStart = (bytes: Uint8Array): number => table(bytes).data;
export const tensorStart = (bytes: Uint8Array, tensor: string): number =>
  dataStart(bytes) + Number(view(bytes).getBigUint64(entry(bytes, tensor).offset, true));
export const tableStart = (bytes: Uint8Array): number => parseGguf(bytes).header.length;

/** The last tensor of a GGUF file's table goes unsaid; its name. */
export function dropLastTensor(bytes: Uint8Array): string {
  const names = [...table(bytes).tensors.keys()];
  view(bytes).setBigUint64(8, BigInt(names.length - 1), true);
  return names.at(-1)!;
}

export function renameTensor(bytes: Uint8Array, tensor: string): void {
  bytes[entry(bytes, tensor).name] = 0x78;
}

export function retypeTensor(bytes: Uint8Array, tensor: string, type: number): void {
  view(bytes).setUint32(entry(bytes, tensor).type, type, true);
}

/** Where a tensor's bytes begin in a safetensors file. */
export function safetensorsStart(bytes: Uint8Array, tensor: string): number {
  const length = Number(view(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  return 8 + length + header[tensor].data_offsets[0];
}

/** A safetensors file with another header and the same data. */
export function withHeader(bytes: Uint8Array, change: (header: Record<string, unknown>) => void): Uint8Array {
  const length = Number(view(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  change(header);
  const text = new TextEncoder().encode(JSON.stringify(header));
  const changed = new Uint8Array(8 + text.length + bytes.length - 8 - length);
  view(changed).setBigUint64(0, BigInt(text.length), true);
  changed.set(text, 8);
  changed.set(bytes.subarray(8 + length), 8 + text.length);
  return changed;
}
