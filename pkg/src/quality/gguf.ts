/** GGUF files as the tools read and write them: metadata as bytes, tensors as ranges of files. */

import { type RawPair, rawPairs } from "../convert/header.ts";
import { ALIGNMENT_BYTES, HEADER_BYTES } from "../source/limits.ts";
import type { Source } from "../source/source.ts";
import { type GgufArray, type GgufText, readNumbers, readStrings } from "../text/gguf.ts";
import { MAX_MERGES, MAX_VOCAB } from "../text/limits.ts";
import { EngineError } from "../types/errors.ts";

/** A tensor and where its bytes lie. */
export interface GgufTensor {
  name: string;
  /** The length of a row first. */
  dims: number[];
  type: number;
  file: number;
  offset: number;
  bytes: number;
}

/** A storage type: its name, the values of a block and the bytes of one. */
export interface BlockType {
  name: string;
  values: number;
  bytes: number;
}

const I2_S = 36;
/** Behind the codes of an I2_S tensor: the scale and padding. */
export const I2S_TAIL = 32;

const TYPES: Readonly<Record<number, readonly [string, number, number]>> = {
  0: ["F32", 1, 4],
  1: ["F16", 1, 2],
  2: ["Q4_0", 32, 18],
  3: ["Q4_1", 32, 20],
  6: ["Q5_0", 32, 22],
  7: ["Q5_1", 32, 24],
  8: ["Q8_0", 32, 34],
  10: ["Q2_K", 256, 84],
  11: ["Q3_K", 256, 110],
  12: ["Q4_K", 256, 144],
  13: ["Q5_K", 256, 176],
  14: ["Q6_K", 256, 210],
  30: ["BF16", 1, 2],
  34: ["TQ1_0", 256, 54],
  35: ["TQ2_0", 256, 66],
  [I2_S]: ["I2_S", 4, 1],
  41: ["Q1_0", 128, 18],
  42: ["Q2_0", 64, 18],
  142: ["PQ2_0", 128, 34],
  143: ["PTQ1_0", 128, 28],
};

/** Types whose number older files use for blocks of another length: told by the tensor's size. */
const OLD_Q2_0: BlockType = { name: "PQ2_0", values: 128, bytes: 34 };

export function blockType({ type, name }: Pick<GgufTensor, "type" | "name">): BlockType {
  const found = TYPES[type];
  if (found) return { name: found[0], values: found[1], bytes: found[2] };
  throw new EngineError("UnsupportedType", `${name}: storage type ${type} is unknown`, {
    tensor: name,
    found: String(type),
  });
}

/** A tensor's type, with the older meaning of number 42 where its blocks have that size. */
export function typeOf(tensor: GgufTensor): BlockType {
  const type = blockType(tensor);
  const old = tensor.type === 42 && tensor.bytes === (valuesOf(tensor) / OLD_Q2_0.values) * OLD_Q2_0.bytes;
  return old ? OLD_Q2_0 : type;
}

export const valuesOf = ({ dims }: Pick<GgufTensor, "dims">): number => dims.reduce((all, dim) => all * dim, 1);

export const rowsOf = (tensor: GgufTensor): number => valuesOf(tensor) / tensor.dims[0]!;

/** Bytes of a row. Of I2_S, its codes alone. */
export function rowBytes(tensor: GgufTensor): number {
  const { values, bytes } = typeOf(tensor);
  return (tensor.dims[0]! / values) * bytes;
}

export const isI2s = ({ type }: Pick<GgufTensor, "type">): boolean => type === I2_S;

const FIRST = 256 << 10;
const STRING = 8;
const ARRAY = 9;
const ALIGNMENT_KEY = "general.alignment";

export class Gguf implements GgufText {
  /** The first file's header. */
  readonly header: Uint8Array;
  readonly pairs: readonly RawPair[];
  readonly tensors: readonly GgufTensor[];
  readonly alignment: number;
  /** Scalars, and arrays as their places in the header. */
  readonly metadata: Readonly<Record<string, unknown>>;

  private constructor(headers: readonly Header[], files: readonly Pick<Source, "name" | "size">[]) {
    const [first] = headers as [Header];
    this.header = first.bytes;
    this.metadata = first.metadata;
    this.pairs = rawPairs(first.bytes);
    this.alignment = first.alignment;
    this.tensors = headers.flatMap(({ tensors, data }, file) =>
      tensors.map((tensor) => ({ ...tensor, file, offset: data + tensor.offset })),
    );
    for (const [i, file] of files.entries()) {
      const own = this.tensors.filter((tensor) => tensor.file === i);
      sizeAll(own as GgufTensor[], file);
    }
  }

  /** Reads the headers of all files of a model. */
  static async open(files: readonly Source[], signal?: AbortSignal): Promise<Gguf> {
    const headers = await Promise.all(files.map((file) => readHeader(file, signal)));
    const first = headers.findIndex(({ metadata }) => metadata["general.architecture"] !== undefined);
    if (first > 0) throw new EngineError("BadHeader", `${files[0]!.name}: the first part has no general.architecture`);
    return new Gguf(headers, files);
  }

  get(key: string): string | number | boolean | undefined {
    const value = this.metadata[key];
    return typeof value === "object" ? undefined : (value as string | number | boolean | undefined);
  }

  array(key: string): GgufArray | undefined {
    const value = this.metadata[key];
    return typeof value === "object" ? (value as GgufArray) : undefined;
  }

  /** A key of the model's architecture. */
  own(key: string): string | number | boolean | undefined {
    return this.get(`${this.architecture}.${key}`);
  }

  get architecture(): string {
    return String(this.get("general.architecture") ?? "");
  }

  strings(key: string): string[] | null {
    return readStrings(this, key, key.endsWith("merges") ? MAX_MERGES : MAX_VOCAB);
  }

  numbers(key: string): Float64Array | null {
    return readNumbers(this, key, MAX_VOCAB);
  }

  tensor(name: string): GgufTensor | undefined {
    return this.tensors.find((one) => one.name === name);
  }
}

/** A tensor's bytes follow from its type; those of a type with two block lengths, from where the next one begins. */
function sizeAll(tensors: GgufTensor[], { name, size }: Pick<Source, "name" | "size">): void {
  const own = tensors.sort((a, b) => a.offset - b.offset);
  for (const [i, tensor] of own.entries()) {
    const type = blockType(tensor);
    const values = valuesOf(tensor);
    const room = (own[i + 1]?.offset ?? size) - tensor.offset;
    tensor.bytes = (values / type.values) * type.bytes + (isI2s(tensor) ? I2S_TAIL : 0);
    const old = (values / OLD_Q2_0.values) * OLD_Q2_0.bytes;
    if (tensor.type === 42 && room < tensor.bytes && room >= old) tensor.bytes = old;
    // The padding behind an I2_S scale may be missing at the end of a file.
    if (isI2s(tensor) && i === own.length - 1 && room >= tensor.bytes - I2S_TAIL + 4)
      tensor.bytes = Math.min(tensor.bytes, room);
    if (!Number.isSafeInteger(tensor.bytes) || tensor.bytes <= 0 || room < tensor.bytes) {
      const detail = { file: name, tensor: tensor.name, offset: tensor.offset, expected: `${tensor.bytes} bytes` };
      const there = Math.max(0, Math.min(room, size - tensor.offset));
      const end = Number.isSafeInteger(tensor.bytes) && tensor.offset + tensor.bytes > size;
      const what = end ? "the file ends inside the tensor: " : "";
      const reason = `${name}: ${tensor.name}: ${what}expected ${detail.expected} from byte ${tensor.offset}, found ${there}`;
      throw new EngineError(end ? "Truncated" : "BadHeader", reason, { ...detail, found: `${there} bytes` });
    }
  }
}

interface Header {
  bytes: Uint8Array;
  metadata: Record<string, unknown>;
  tensors: { name: string; dims: number[]; type: number; offset: number; bytes: number }[];
  data: number;
  alignment: number;
}

/** The bytes that are there do not reach so far. */
class Short extends Error {}

async function readHeader(source: Source, signal?: AbortSignal): Promise<Header> {
  const most = Math.min(source.size, HEADER_BYTES);
  for (let length = Math.min(FIRST, most); ; length = Math.min(4 * length, most)) {
    const bytes = await source.read(0, length, signal ? { signal } : {});
    try {
      return new Cursor(bytes, source.name).header();
    } catch (error) {
      if (!(error instanceof Short)) throw error;
      if (length === most) {
        const [code, what] =
          length === source.size ? (["Truncated", "the file"] as const) : (["BadHeader", "the header"] as const);
        throw new EngineError(code, `${source.name}: ${what} ends inside the header`, {
          file: source.name,
          offset: length,
        });
      }
    }
  }
}

/** Bytes of the types with a fixed width, by number. */
const WIDTHS = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

class Cursor {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #file: string;
  #at = 0;

  constructor(bytes: Uint8Array, file: string) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#file = file;
  }

  header(): Header {
    const magic = new TextDecoder("latin1").decode(this.#bytes.subarray(0, 4));
    if (magic !== "GGUF") {
      throw new EngineError("BadMagic", `${this.#file} is no GGUF: ternlight convert makes one of it`, {
        file: this.#file,
        expected: "GGUF",
        found: magic,
      });
    }
    this.#skip(4);
    const version = this.#u32();
    if (version !== 2 && version !== 3) throw this.#wrong("version", "2 or 3", version);
    const count = this.#u64();
    const pairs = this.#u64();
    const metadata: Record<string, unknown> = Object.create(null);
    for (let i = 0; i < pairs; i++) {
      const key = this.#string();
      metadata[key] = this.#value(this.#u32());
    }
    const tensors: Header["tensors"] = [];
    while (tensors.length < count) tensors.push(this.#tensor());
    const alignment = Number(metadata[ALIGNMENT_KEY] ?? 32);
    if (!(alignment > 0 && alignment <= ALIGNMENT_BYTES && Number.isInteger(Math.log2(alignment)))) {
      throw this.#wrong(ALIGNMENT_KEY, `a power of two, at most ${ALIGNMENT_BYTES}`, alignment);
    }
    const data = Math.ceil(this.#at / alignment) * alignment;
    return { bytes: this.#bytes.subarray(0, this.#at), metadata, tensors, data, alignment };
  }

  #tensor(): Header["tensors"][number] {
    const name = this.#string();
    const dimensions = this.#u32();
    if (dimensions < 1 || dimensions > 4) throw this.#wrong(name, "1 to 4 dimensions", dimensions);
    const dims = Array.from({ length: dimensions }, () => this.#u64());
    return { name, dims, type: this.#u32(), offset: this.#u64(), bytes: 0 };
  }

  #value(type: number): unknown {
    if (type === STRING) return this.#string();
    if (type === ARRAY) return this.#array();
    const at = this.#at;
    this.#skip(WIDTHS[type] || this.#unknown(type));
    switch (type) {
      case 0:
        return this.#view.getUint8(at);
      case 1:
        return this.#view.getInt8(at);
      case 2:
        return this.#view.getUint16(at, true);
      case 3:
        return this.#view.getInt16(at, true);
      case 4:
        return this.#view.getUint32(at, true);
      case 5:
        return this.#view.getInt32(at, true);
      case 6:
        return this.#view.getFloat32(at, true);
      case 7:
        return this.#view.getUint8(at) !== 0;
      case 10:
        return Number(this.#view.getBigUint64(at, true));
      case 11:
        return Number(this.#view.getBigInt64(at, true));
      default:
        return this.#view.getFloat64(at, true);
    }
  }

  #array(): GgufArray {
    const elementType = this.#u32();
    const count = this.#u64();
    const offset = this.#at;
    if (elementType === STRING) for (let i = 0; i < count; i++) this.#skip(this.#u64());
    else this.#skip(count * (WIDTHS[elementType] || this.#unknown(elementType)));
    return { elementType, count, offset, length: this.#at - offset };
  }

  #string(): string {
    const length = this.#u64();
    const at = this.#at;
    this.#skip(length);
    return new TextDecoder().decode(this.#bytes.subarray(at, at + length));
  }

  #u32(): number {
    this.#skip(4);
    return this.#view.getUint32(this.#at - 4, true);
  }

  #u64(): number {
    this.#skip(8);
    return Number(this.#view.getBigUint64(this.#at - 8, true));
  }

  #skip(bytes: number): void {
    this.#at += bytes;
    if (this.#at > this.#bytes.length) throw new Short();
  }

  #unknown(type: number): never {
    throw this.#wrong("metadata", "a known type", type);
  }

  #wrong(what: string, expected: string, found: unknown): EngineError {
    const reason = `${this.#file}: ${what} at byte ${this.#at}: expected ${expected}, got ${found}`;
    return new EngineError("BadHeader", reason, {
      file: this.#file,
      offset: this.#at,
      expected,
      found: String(found),
    });
  }
}
