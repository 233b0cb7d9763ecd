/** Conversions by the built command line, and what is in the files it writes. */

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { json } from "../../cli/support/ternlight.ts";
import { readGguf } from "../../source/support/split.ts";
import { parseGguf } from "../../text/support/gguf_file.ts";

export interface Tensor {
  dims: number[];
  type: number;
  data: Uint8Array;
}

export const I2_S = 36;
/** Values and bytes of a block, by type. I2_S: without its scale. */
const SIZES: Record<number, [number, number]> = {
  0: [1, 4],
  1: [1, 2],
  2: [32, 18],
  3: [32, 20],
  8: [32, 34],
  12: [256, 144],
  14: [256, 210],
  30: [1, 2],
  34: [256, 54],
  35: [256, 66],
  36: [4, 1],
  41: [128, 18],
  42: [64, 18],
};

export async function folder(context: TestContext): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

export interface Converted {
  path: string;
  warnings: string[];
  bytes: Uint8Array;
  tensors: Map<string, Tensor>;
  metadata: ReturnType<typeof parseGguf>;
}

/** Converts into a folder of the test's own, where nothing else may be left. */
export async function convert(context: TestContext, source: string, ...flags: string[]): Promise<Converted> {
  const into = await folder(context);
  const path = join(into, "out.gguf");
  const told = await json("convert", source, path, ...flags);
  assert.deepEqual(await readdir(into), ["out.gguf"]);
  const bytes = await readFile(path);
  assert.equal(told.bytes, bytes.length);
  return { path, warnings: told.warnings, bytes, ...contents(bytes) };
}

/** A file's tensors by name, each cut to the bytes that mean something. */
export function contents(bytes: Uint8Array): Pick<Converted, "tensors" | "metadata"> {
  const tensors = readGguf(bytes).tensors.map(({ name, dims, type, data }): [string, Tensor] => {
    const [block, size] = SIZES[type]!;
    const values = dims.reduce((product, dim) => product * dim, 1);
    return [name, { dims, type, data: data.subarray(0, (values / block) * size + (type === I2_S ? 4 : 0)) }];
  });
  return { tensors: new Map(tensors), metadata: parseGguf(bytes) };
}

/** Ternary codes and block scales of a tensor, one after another, read as FORMATS describe them and in no other way. */
export function plain({ type, data }: Tensor): { codes: Uint8Array; scales: number[] } {
  const codes: number[] = [];
  const scales: number[] = [];
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (type === I2_S) {
    const count = (data.length - 4) * 4;
    for (let i = 0; i < count; i++) {
      const [group, within] = [Math.floor(i / 128), i % 128];
      codes.push((data[32 * group + (within % 32)]! >> (6 - 2 * Math.floor(within / 32))) & 3);
    }
    scales.push(view.getFloat32(data.length - 4, true));
  } else if (type === 35) {
    for (let at = 0; at < data.length; at += 66) {
      for (let i = 0; i < 256; i++) {
        const [group, within] = [i >> 7, i & 127];
        codes.push((data[at + 32 * group + (within & 31)]! >> (2 * (within >> 5))) & 3);
      }
      scales.push(half(view.getUint16(at + 64, true)));
    }
  } else {
    assert.equal(type, 34);
    for (let at = 0; at < data.length; at += 54) {
      for (let i = 0; i < 256; i++) {
        const [byte, digit] =
          i < 160
            ? [i % 32, Math.floor(i / 32)]
            : i < 240
              ? [32 + (i % 16), Math.floor((i - 160) / 16)]
              : [48 + (i % 4), (i - 240) >> 2];
        codes.push(((((data[at + byte]! * 3 ** digit) & 255) * 3) >> 8) & 3);
      }
      scales.push(half(view.getUint16(at + 52, true)));
    }
  }
  return { codes: Uint8Array.from(codes), scales };
}

export function half(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits >> 15 ? -1 : 1;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}
