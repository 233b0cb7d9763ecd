/** GGUF files with one thing changed, written by other code than the package's own. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { readGguf } from "../../source/support/split.ts";
import { Writer } from "../../source/support/writer.ts";

export type Value = string | number | boolean | readonly string[] | Int32Array;

export interface Tensor {
  name: string;
  dims: number[];
  type: number;
  data: Uint8Array;
}

export interface Change {
  /** Keys to write; null takes one away. */
  keys?: Record<string, Value | null>;
  /** Changes the list of tensors; their data are copies. */
  tensors?: (tensors: Tensor[]) => Tensor[];
}

const ALIGNMENT = 32;

export function rebuilt(
  file: Uint8Array,
  { keys = {}, tensors: change = (all) => all }: Change,
): Uint8Array<ArrayBuffer> {
  const old = readGguf(file);
  const kept = pairsOf(file).filter(({ key }) => !Object.hasOwn(keys, key));
  const added = Object.entries(keys).filter((entry): entry is [string, Value] => entry[1] !== null);
  const tensors = change(old.tensors.map((tensor) => ({ ...tensor, data: tensor.data.slice() })));
  const writer = new Writer().bytes(new TextEncoder().encode("GGUF")).u32(3);
  writer.u64(tensors.length).u64(kept.length + added.length);
  for (const { bytes } of kept) writer.bytes(bytes);
  for (const [key, value] of added) pair(writer.string(key), value);
  let offset = 0;
  for (const { name, dims, type, data } of tensors) {
    writer.string(name).u32(dims.length);
    for (const dim of dims) writer.u64(dim);
    writer.u32(type).u64(offset);
    offset += Math.ceil(data.length / ALIGNMENT) * ALIGNMENT;
  }
  for (const { data } of tensors) writer.pad(ALIGNMENT).bytes(data);
  return writer.pad(ALIGNMENT).done();
}

function pair(writer: Writer, value: Value): void {
  if (typeof value === "string") writer.u32(8).string(value);
  else if (typeof value === "number") writer.u32(4).u32(value);
  else if (typeof value === "boolean") writer.u32(7).bytes(Uint8Array.of(value ? 1 : 0));
  else {
    const ints = value instanceof Int32Array;
    writer
      .u32(9)
      .u32(ints ? 5 : 8)
      .u64(value.length);
    if (ints) writer.bytes(new Uint8Array(value.slice().buffer));
    else for (const text of value as readonly string[]) writer.string(text);
  }
}

const WIDTHS: Record<number, number> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };

/** The metadata pairs, as bytes. */
function pairsOf(file: Uint8Array): { key: string; bytes: Uint8Array }[] {
  const { metadata, pairs } = readGguf(file);
  const view = new DataView(metadata.buffer, metadata.byteOffset, metadata.byteLength);
  let at = 0;
  const take = (length: number) => {
    at += length;
    return at - length;
  };
  const u64 = () => Number(view.getBigUint64(take(8), true));
  const u32 = () => view.getUint32(take(4), true);
  const skip = (type: number) => take(type === 8 ? u64() : WIDTHS[type]!);
  return Array.from({ length: pairs }, () => {
    const from = at;
    take(u64());
    const key = new TextDecoder().decode(metadata.subarray(from + 8, at));
    const type = u32();
    if (type !== 9) skip(type);
    else {
      const element = u32();
      for (let left = u64(); left > 0; left--) skip(element);
    }
    return { key, bytes: metadata.subarray(from, at) };
  });
}

/** Changes the bytes of one tensor. */
export const spoilt =
  (name: string, spoil: (data: Uint8Array, view: DataView) => void) =>
  (tensors: Tensor[]): Tensor[] => {
    const { data } = tensors.find((tensor) => tensor.name === name)!;
    spoil(data, new DataView(data.buffer, data.byteOffset, data.byteLength));
    return tensors;
  };

const root = (name: string) => fileURLToPath(new URL(`../../../../${name}`, import.meta.url));

/** The demo model, which is trained, as a GGUF. */
export function trained(...flags: string[]): Uint8Array<ArrayBuffer> {
  const folder = mkdtempSync(path.join(tmpdir(), "ternlight-"));
  try {
    const out = path.join(folder, "demo.gguf");
    execFileSync(process.execPath, [root("pkg/dist/cli.js"), "convert", "ternlight-demo", out, ...flags]);
    return new Uint8Array(readFileSync(out));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export async function bytesOf(file: {
  stream(): AsyncIterable<Uint8Array>;
  size: number;
}): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(file.size);
  let at = 0;
  for await (const piece of file.stream()) {
    bytes.set(piece, at);
    at += piece.length;
  }
  if (at !== file.size) throw new Error(`${at} bytes, not the ${file.size} that were promised`);
  return bytes;
}

export const demoText = (): string => readFileSync(root("tests/golden/fairy-bitnet/heldout.txt"), "utf8");
