/**
 * Whether queries and keys are in the order that the model's RoPE takes. An architecture rotates either neighbours or the two halves of
 * a head, and converters must order rows to fit. In the wrong order a model still runs, and has lost where words stand: its
 * perplexity tells.
 */

import type { LoadOptions, Model, ModelSource } from "../../types/index.ts";
import { type Gguf, type GgufTensor, rowBytes, valuesOf } from "../gguf.ts";
import {
  changed,
  kept,
  type NewFile,
  type NewTensor,
  newGguf,
  type Opening,
  type Part,
  toBlob,
  whole,
} from "../new_gguf.ts";
import { contextOf } from "../perplexity.ts";
import type { Finding } from "./finding.ts";

/** Some sentences of plain English, about a hundred tokens. */
export const PROBE =
  "Once upon a time there was an old man who lived in a small house near the sea with his wife and their three sons. " +
  "Every morning the man went down to the water with his boat, and every evening he came home with the fish that he had " +
  "caught. The eldest son helped him, the second son looked after the house, and the youngest son sat by the fire and " +
  "told stories. One day the king came to the village and said: “Whoever brings me the golden fish shall have half of my " +
  "kingdom.” The three brothers looked at each other, and in the morning they set out to find it.";

/** The other order must be so much better … */
const BETTER = 0.7;
/** … and better than guessing, by this part of the vocabulary. */
const LEARNT = 0.1;

const TURNED = /^blk\.\d+\.attn_(q|k)(_norm)?\.(weight|bias)$/;

/** Why the rule cannot be looked at; null where it can. */
export function whyNot(gguf: Gguf | null): string | null {
  if (!gguf) return "only of GGUF: safetensors have one order";
  if (gguf.get("tokenizer.ggml.model") === undefined) return "the model has no tokenizer";
  const head = headSize(gguf);
  const turned = gguf.own("rope.dimension_count") ?? head;
  if (turned !== head) return "only a part of each head is turned";
  if (gguf.tensors.some(({ name }) => /attn_qkv/.test(name))) return "queries and keys lie in one matrix";
  return null;
}

const headSize = (gguf: Gguf): number =>
  Number(
    gguf.own("attention.key_length") ?? Number(gguf.own("embedding_length")) / Number(gguf.own("attention.head_count")),
  );

/** The model with the rows of its queries and keys in the order of the other style. */
export function turned(gguf: Gguf): NewTensor[] {
  const head = headSize(gguf);
  const half = head / 2;
  // Where a row of the new order comes from. Neighbours are what `llama` turns, halves all others.
  const adjacent = gguf.architecture === "llama";
  const from = (row: number) => {
    const [first, within] = [row - (row % head), row % head];
    if (adjacent) return first + (within % 2 === 0 ? within / 2 : half + (within - 1) / 2);
    return first + (within < half ? 2 * within : 2 * (within - half) + 1);
  };
  return gguf.tensors.map((tensor) =>
    kept(tensor, TURNED.test(tensor.name) ? rows(tensor, head, from) : [whole(tensor)]),
  );
}

function rows(tensor: GgufTensor, head: number, from: (row: number) => number): Part[] {
  const { file, offset, bytes } = tensor;
  const row = tensor.dims.length > 1 ? rowBytes(tensor) : bytes / valuesOf(tensor);
  const unit = row * head;
  const count = Math.floor(bytes / unit) * unit;
  const change = (piece: Uint8Array) => {
    const out = new Uint8Array(piece.length);
    for (let at = 0; at < piece.length; at += row) {
      const source = from(at / row) * row;
      out.set(piece.subarray(source, source + row), at);
    }
    return out;
  };
  const tail = bytes - count;
  return [
    { file, offset, length: count, unit, change },
    // The scale behind the codes of I2_S.
    ...(tail > 0 ? [{ file, offset: offset + count, length: tail }] : []),
  ];
}

export function turnedFile(opening: Opening, gguf: Gguf): NewFile {
  return newGguf(opening, gguf, changed(gguf.pairs, new Map()), turned(gguf));
}

export type Load = (source: ModelSource, options: LoadOptions) => Promise<Model>;

export interface RopeFinding extends Finding {
  turned: true;
}

/** Compares the perplexity of a text in both orders. */
export async function checkRope(
  load: Load,
  source: ModelSource,
  opening: Opening,
  gguf: Gguf,
  signal?: AbortSignal,
): Promise<RopeFinding[]> {
  const options = { contextLength: contextOf(gguf), maxSequences: 1, signal, warmup: false };
  const own = await perplexityOf(load, source, options);
  const other = await perplexityOf(load, await toBlob(turnedFile(opening, gguf), signal), options);
  const vocab = gguf.array("tokenizer.ggml.tokens")?.count ?? 0;
  if (!(other < BETTER * own && other < LEARNT * vocab)) return [];
  const [is, expected] = gguf.architecture === "llama" ? ["halves", "neighbours"] : ["neighbours", "halves"];
  return [
    {
      rule: "rope",
      level: "error",
      turned: true,
      message: `the rows of attn_q and attn_k are ordered for RoPE on ${is}, ${gguf.architecture} turns ${expected}: perplexity of a built-in text ${own.toFixed(1)}, in the other order ${other.toFixed(1)}`,
      advice: "reorder the rows, as --fix does",
      fixable: true,
    },
  ];
}

async function perplexityOf(load: Load, source: ModelSource, options: LoadOptions): Promise<number> {
  const model = await load(source, options);
  try {
    return (await model.perplexity(PROBE, { signal: options.signal })).perplexity;
  } finally {
    await model.close();
  }
}
