/** Rules about the head: the matrix that makes logits. */

import type { Source } from "../../source/source.ts";
import { type Gguf, type GgufTensor, rowsOf, valuesOf } from "../gguf.ts";
import { labelled, parameters, SIZE_LABEL, sizeLabel } from "../size_label.ts";
import type { Finding } from "./finding.ts";
import type { Checked } from "./model.ts";

const [EMBEDDING, HEAD] = ["token_embd.weight", "output.weight"] as const;

export interface HeadFinding extends Finding {
  /** A tensor that goes. */
  drop?: string;
}

export async function checkHead(checked: Checked, signal?: AbortSignal): Promise<HeadFinding[]> {
  const { gguf, files, config, weights } = checked;
  if (gguf) return [...vocabulary(gguf), ...lost(gguf), ...(await storedTwice(gguf, files.weights, signal))];
  const head = weights.some(({ name }) => /(^|\.)lm_head\./.test(name));
  if (config?.tie_word_embeddings !== false || head) return [];
  return [
    {
      rule: "head",
      level: "error",
      tensor: "lm_head.weight",
      key: "tie_word_embeddings",
      message: "config.json says tie_word_embeddings: false, and there is no lm_head.weight",
      advice:
        "add the shard that has it; or, where the model was trained with one matrix, set tie_word_embeddings to true",
      fixable: false,
    },
  ];
}

/** Tokens without a row of the embedding or the head. */
function vocabulary(gguf: Gguf): HeadFinding[] {
  const tokens = gguf.array("tokenizer.ggml.tokens")?.count;
  if (tokens === undefined) return [];
  return [EMBEDDING, HEAD].flatMap((name): HeadFinding[] => {
    const tensor = gguf.tensor(name);
    if (!tensor || rowsOf(tensor) >= tokens) return [];
    return [
      {
        rule: "head",
        level: "error",
        tensor: name,
        message: `${name} has ${rowsOf(tensor)} rows; expected one for each of the ${tokens} tokens`,
        advice: "convert the model anew, with the tokenizer that it was trained with",
        fixable: false,
      },
    ];
  });
}

/** A head that the file was made with, by its own count of parameters. Without one, the embedding would stand in for it. */
function lost(gguf: Gguf): HeadFinding[] {
  const [embedding, label] = [gguf.tensor(EMBEDDING), gguf.get(SIZE_LABEL)];
  const range = labelled(label);
  if (gguf.tensor(HEAD) || !embedding || !range) return [];
  const count = parameters(gguf.tensors);
  const fits = (value: number) => value >= range.least && value <= range.most;
  if (fits(count) || !fits(count + valuesOf(embedding))) return [];
  return [
    {
      rule: "head",
      level: "error",
      tensor: HEAD,
      key: SIZE_LABEL,
      message: `${HEAD} is missing: ${SIZE_LABEL} says ${label}, the tensors hold ${sizeLabel(count)} parameters, and a head of its own would make up the rest`,
      advice: "convert the model anew: the embedding stands in for a head that it is not",
      fixable: false,
    },
  ];
}

/** A head that is the embedding, byte by byte. */
async function storedTwice(gguf: Gguf, files: readonly Source[], signal?: AbortSignal): Promise<HeadFinding[]> {
  const [embedding, head] = [gguf.tensor(EMBEDDING), gguf.tensor(HEAD)];
  if (!embedding || !head || embedding.type !== head.type || embedding.bytes !== head.bytes) return [];
  if (!(await sameBytes(embedding, head, files, signal))) return [];
  return [
    {
      rule: "head",
      level: "warning",
      tensor: HEAD,
      message: `${HEAD} holds the same ${head.bytes} bytes as ${EMBEDDING}: a tied head is stored twice`,
      advice: `leave ${HEAD} out, as --fix does: the embedding is the head then`,
      fixable: true,
      drop: HEAD,
    },
  ];
}

const CHUNK = 1 << 20;

async function sameBytes(
  a: GgufTensor,
  b: GgufTensor,
  files: readonly Source[],
  signal?: AbortSignal,
): Promise<boolean> {
  const options = signal ? { signal } : {};
  for (let at = 0; at < a.bytes; at += CHUNK) {
    const length = Math.min(CHUNK, a.bytes - at);
    const [one, other] = await Promise.all(
      [a, b].map(({ file, offset }) => files[file]!.read(offset + at, length, options)),
    );
    if (one!.some((byte, i) => byte !== other![i])) return false;
  }
  return true;
}
