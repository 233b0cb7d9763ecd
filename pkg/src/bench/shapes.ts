/** The sizes of some public models. */

import { EngineError } from "../types/errors.ts";
import { type BlockType, blockTypes } from "./blocks.ts";

export interface Shape {
  /** As GGUF's `general.architecture`. */
  arch: string;
  hidden: number;
  layers: number;
  heads: number;
  kv: number;
  /** Values per head. */
  head: number;
  ffn: number;
  vocab: number;
  /** 1 where the head is the embedding. */
  tied: number;
  /** Of a hybrid: one layer in so many attends, the others are gated delta nets with such heads. */
  interval?: number;
  kheads?: number;
  vheads?: number;
  state?: number;
  /** Values that a rotation takes together before each matrix whose weights are stored rotated; 0 where none is. */
  rotated?: number;
  /** 1 where a hybrid has a head for further tokens. */
  mtp?: number;
}

interface Named extends Shape {
  type: string;
  embedding: string;
}

const bitnet = { arch: "bitnet-b1.58", type: "tq2_0", embedding: "q6_k", tied: 1 };
const hybrid = { arch: "qwen35", head: 256, interval: 4, kheads: 16, state: 128, vocab: 248320, rotated: 0, mtp: 0 };
const bonsai27b = { ...hybrid, hidden: 5120, layers: 64, heads: 24, kv: 4, ffn: 17408, vheads: 48, tied: 0 };
const twoBillion = { hidden: 2560, layers: 30, heads: 20, kv: 5, head: 128, ffn: 6912, vocab: 128256 };

/** Each with the types that it is usually published in, where its width is a whole number of blocks. */
export const shapes: Readonly<Record<string, Named>> = {
  /** ternlight-demo. */
  fairy: { ...bitnet, hidden: 256, layers: 6, heads: 4, kv: 2, head: 64, ffn: 768, vocab: 4096 },
  /** SmolLM2-135M. */
  "135m": {
    ...{ ...bitnet, arch: "llama", type: "q4_1", embedding: "q8_0" },
    ...{ hidden: 576, layers: 30, heads: 9, kv: 3, head: 64, ffn: 1536, vocab: 49152 },
  },
  "138m": {
    ...{ ...bitnet, arch: "llama" },
    ...{ hidden: 768, layers: 16, heads: 12, kv: 4, head: 64, ffn: 2048, vocab: 49152 },
  },
  /** Bonsai 1.7B. */
  "1.7b": {
    ...{ ...bitnet, arch: "qwen3", type: "q1_0", embedding: "q1_0" },
    ...{ hidden: 2048, layers: 28, heads: 16, kv: 8, head: 128, ffn: 6144, vocab: 151936 },
  },
  /** BitNet b1.58 2B-4T. */
  "2b4t": { ...bitnet, ...twoBillion },
  /** The sizes of 2B-4T with llama's graph, which engines without BitNet's run too. */
  b2b: { ...bitnet, ...twoBillion, arch: "llama" },
  /** Hybrids: Qwen3.5 4B, Bonsai 27B and Ternary-Bonsai 2 27B. */
  "qwen3.5-4b": {
    ...{ ...hybrid, type: "q4_k", embedding: "q6_k", tied: 1 },
    ...{ hidden: 2560, layers: 32, heads: 16, kv: 4, ffn: 9216, vheads: 32 },
  },
  bonsai27b: { ...bonsai27b, type: "q1_0", embedding: "q1_0" },
  ternary27b: { ...bonsai27b, type: "pq2_0", embedding: "pq2_0" },
};

/** GGUF's names of the matrices. */
export const matrices = [
  "token_embd",
  "output",
  "attn_q",
  "attn_k",
  "attn_v",
  "attn_output",
  "ffn_gate",
  "ffn_up",
  "ffn_down",
] as const;
/** Those of a gated delta net: the small ones are floats in any model. */
const hybridMatrices = ["attn_qkv", "attn_gate", "ssm_out"] as const;
const smallMatrices = ["ssm_alpha", "ssm_beta"] as const;
/** Those that a rotated model stores rotated. */
export const rotatable: ReadonlySet<string> = new Set(
  [...matrices, ...hybridMatrices].filter((name) => name !== "token_embd"),
);
/** That of a head for further tokens. */
const mtpMatrices = ["nextn.eh_proj"] as const;
export type MatrixName = (typeof matrices | typeof hybridMatrices | typeof smallMatrices | typeof mtpMatrices)[number];

export interface Kinds {
  name: string;
  shape: Shape;
  types: Record<MatrixName, BlockType>;
}

/**
 * A model in words: `shape` is a name with other sizes behind it (`2b4t,layers=4`), `type` a storage type with others for
 * single matrices (`tq2_0,ffn_down=q6_k`), `embedding` that of the embedding and of a head of its own.
 */
export interface SyntheticOptions {
  shape: string;
  type?: string;
  embedding?: string;
  /** @default 158 */
  seed?: number;
}

export function kinds({ shape, type, embedding }: SyntheticOptions): Kinds {
  const [name, changes] = words("shape", shape);
  const named = oneOf("shape", shapes, name);
  const sizes: Record<string, string | number> = { ...named };
  for (const [key, value] of changes) {
    if (key === "type" || key === "embedding" || !(key in named)) throw wrong("shape", fields(named), key);
    if (key !== "arch" && !/^\d{1,7}$/.test(value)) throw wrong("shape", `${key}=N`, `${key}=${value}`);
    sizes[key] = key === "arch" ? value : Number(value);
  }
  const [all, others] = words("type", type ?? named.type);
  const embedded = embedding ?? named.embedding;
  const isHybrid = sizes.interval !== undefined;
  const own = isHybrid ? [...matrices, ...hybridMatrices, ...(sizes.mtp ? mtpMatrices : [])] : matrices;
  const byName: Record<string, string> = Object.fromEntries(own.map((matrix) => [matrix, all]));
  byName.token_embd = byName.output = embedded;
  if (isHybrid) for (const name of smallMatrices) byName[name] = "bf16";
  for (const [key, value] of others) {
    if (!(key in byName)) throw wrong("type", Object.keys(byName).join(", "), key);
    byName[key] = value;
  }
  const types = Object.entries(byName).map(([key, value]) => {
    return [key, oneOf(value === embedded ? "embedding" : "type", blockTypes, value)] as const;
  });
  return {
    name: [shape, ...new Set(Object.values(byName))].join(" "),
    shape: sizes as unknown as Shape,
    types: Object.fromEntries(types) as Record<MatrixName, BlockType>,
  };
}

const fields = (named: object) =>
  Object.keys(named)
    .filter((key) => key !== "type" && key !== "embedding")
    .join(", ");

/** `first,key=value,…` */
function words(option: string, text: string): [string, [string, string][]] {
  const [first = "", ...rest] = text.split(",");
  const pairs = rest.map((pair): [string, string] => {
    const [key, value] = pair.split("=");
    if (!key || !value) throw wrong(option, "key=value behind each comma", pair);
    return [key, value];
  });
  return [first, pairs];
}

function oneOf<T>(option: string, known: Readonly<Record<string, T>>, name: string): T {
  if (!Object.hasOwn(known, name)) throw wrong(option, Object.keys(known).join(", "), name);
  return known[name]!;
}

export function wrong(option: string, expected: string, found: string): EngineError {
  return new EngineError("InvalidArgument", `bench: ${option} must be ${expected}, not ${found}`, {
    option,
    expected,
    found,
  });
}
