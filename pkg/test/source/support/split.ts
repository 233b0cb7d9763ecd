/** Whole model files cut into parts, the way llama.cpp and Hugging Face cut theirs. */

import { parseGguf } from "../../text/support/gguf_file.ts";
import { Writer } from "./writer.ts";

export type Files = Record<string, Uint8Array<ArrayBuffer>>;

const ALIGNMENT = 32;

/** The name of part `index` of `count`. */
export const partName = (stem: string, index: number, count: number, ending: string): string =>
  `${stem}-${String(index + 1).padStart(5, "0")}-of-${String(count).padStart(5, "0")}.${ending}`;

export interface SplitKeys {
  no: number;
  count: number;
  tensors: number;
}

/** Parts of a GGUF. `keys` may change what each of them says of itself. */
export function splitGguf(
  file: Uint8Array,
  stem: string,
  count: number,
  keys: (own: SplitKeys) => SplitKeys = (own) => own,
): Files {
  const { metadata, pairs, tensors } = readGguf(file);
  const each = Math.ceil(tensors.length / count);
  const parts = Array.from({ length: count }, (_, index) => {
    const own = tensors.slice(index * each, (index + 1) * each);
    const { no, count: of, tensors: all } = keys({ no: index, count, tensors: tensors.length });
    const writer = new Writer();
    writer.bytes(new TextEncoder().encode("GGUF")).u32(3).u64(own.length);
    // Only the first has what the model is.
    writer.u64((index === 0 ? pairs : 0) + 3).bytes(index === 0 ? metadata : new Uint8Array());
    writer.string("split.no").u32(2).u16(no);
    writer.string("split.count").u32(2).u16(of);
    writer.string("split.tensors.count").u32(5).u32(all);
    let offset = 0;
    for (const { name, dims, type, data } of own) {
      writer.string(name).u32(dims.length);
      for (const dim of dims) writer.u64(dim);
      writer.u32(type).u64(offset);
      offset += Math.ceil(data.length / ALIGNMENT) * ALIGNMENT;
    }
    for (const { data } of own) writer.pad(ALIGNMENT).bytes(data);
    return [partName(stem, index, count, "gguf"), writer.done()] as const;
  });
  return Object.fromEntries(parts);
}

export function readGguf(file: Uint8Array) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const count = Number(view.getBigUint64(8, true));
  const header = parseGguf(file).header;
  let at = header.length;
  const take = (length: number) => {
    at += length;
    return at - length;
  };
  const u32 = () => view.getUint32(take(4), true);
  const u64 = () => Number(view.getBigUint64(take(8), true));
  const infos = Array.from({ length: count }, () => {
    const length = u64();
    const name = new TextDecoder().decode(file.subarray(take(length), at));
    const dims = Array.from({ length: u32() }, u64);
    return { name, dims, type: u32(), offset: u64() };
  });
  const start = Math.ceil(at / ALIGNMENT) * ALIGNMENT;
  const ends = [...infos.map(({ offset }) => offset), file.length - start].sort((a, b) => a - b);
  const tensors = infos.map(({ offset, ...info }) => {
    const end = ends.find((end) => end > offset)!;
    return { ...info, data: file.subarray(start + offset, start + end) };
  });
  return { metadata: header.subarray(24), pairs: Number(view.getBigUint64(16, true)), tensors };
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Shards of a safetensors file; `weightMap` is what their index says. */
export function shardSafetensors(file: Uint8Array, count: number): { files: Files; weightMap: Record<string, string> } {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length))) as Record<string, Entry>;
  const names = Object.keys(header).filter((name) => name !== "__metadata__");
  const files: Files = {};
  const weightMap: Record<string, string> = {};
  const each = Math.ceil(names.length / count);
  for (let index = 0; index < count; index++) {
    const shard = partName("model", index, count, "safetensors");
    const own: Record<string, Entry> = {};
    const data: Uint8Array[] = [];
    let offset = 0;
    for (const name of names.slice(index * each, (index + 1) * each)) {
      const [begin, end] = header[name]!.data_offsets;
      data.push(file.subarray(8 + length + begin, 8 + length + end));
      own[name] = { ...header[name]!, data_offsets: [offset, offset + end - begin] };
      offset += end - begin;
      weightMap[name] = shard;
    }
    const json = new TextEncoder().encode(JSON.stringify(own));
    const writer = new Writer().u64(json.length).bytes(json);
    for (const bytes of data) writer.bytes(bytes);
    files[shard] = writer.done();
  }
  return { files, weightMap };
}

export const json = (value: unknown): Uint8Array<ArrayBuffer> => new TextEncoder().encode(JSON.stringify(value));
