/** Cuts a model's vocabulary to what texts need: embedding, head and tokenizer lose the same rows. */

import type { RawPair } from "../convert/header.ts";
import { fromGguf } from "../text/from_gguf.ts";
import { partsOf } from "../text/parts.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";
import { Gguf, type GgufTensor, I2S_TAIL, isI2s, rowBytes, rowsOf } from "./gguf.ts";
import {
  changed,
  kept,
  type NewFile,
  newGguf,
  type Opening,
  type Part,
  pair,
  sameFile,
  sizeOf,
  whole,
  withFiles,
} from "./new_gguf.ts";
import { parameters, SIZE_LABEL, sizeLabel } from "./size_label.ts";
import { type Chosen, choose, closure, keptMerges, type Vocabulary, vocabularyOf } from "./slice_tokens.ts";

export interface SliceOptions {
  /** Tokens of the new vocabulary. @default all that `tokens` needs */
  keep?: number | undefined;
  /** The text whose tokens stay. Its last tenth is held out, to say what the slice costs. Beside `tokens`, it chooses nothing. */
  text?: string | undefined;
  /** Tokens to keep in place of the text's: ids, or texts as the vocabulary spells them. */
  tokens?: readonly (number | string)[] | undefined;
  /** Options of loads, of which it takes `cache`: where a model on a server is kept. */
  load?: LoadOptions | undefined;
  signal?: AbortSignal | undefined;
}

export interface Sliced {
  file: NewFile;
  /** Tokens before and after. */
  before: number;
  after: number;
  /** Bytes of the whole file before and after. */
  bytesBefore: number;
  bytesAfter: number;
  /** The old id of each new one. */
  ids: Uint32Array;
  /** Share of the text's tokens that stay; null without a text. */
  coverage: number | null;
  /** Tokens of the held-out part before and after. */
  heldOut: { before: number; after: number } | null;
}

const TOKENS = "tokenizer.ggml.tokens";
const MERGES = "tokenizer.ggml.merges";
/** Keys whose value is an id, or a list of them. */
const ID = /^(tokenizer\.ggml\..*_token_id|.*\.(bos|eos|pad|decoder_start)_token_id)$/;
const IDS = /^tokenizer\.ggml\.(.*_token_ids|suppress_tokens)$/;
/** The old id of each new one, for options that were written for the whole vocabulary. */
export const IDS_KEY = "ternlight.slice.ids";
const HELD_OUT = 0.1;
const ROWS = ["token_embd.weight", "output.weight", "output.bias"];

export async function sliceModel(opening: Opening, options: SliceOptions): Promise<Sliced> {
  const { signal, text, tokens, keep } = options;
  if (text === undefined && tokens === undefined) {
    throw new EngineError("InvalidArgument", "slice: give a text or a list of tokens", { option: "text" });
  }
  if ((tokens === undefined) !== (keep !== undefined)) {
    const reason = tokens ? "keep: a list of tokens is kept as a whole" : "say how many tokens to keep of the text's";
    throw new EngineError("InvalidArgument", `slice: ${reason}`, { option: "keep" });
  }
  return withFiles(opening, signal, async (files) => {
    const gguf = await Gguf.open(files.weights, signal);
    const vocabulary = vocabularyOf(gguf);
    const named = namedIds(gguf);
    const tokenizer = tokenizerOf(gguf);
    const parts = text === undefined ? null : splitText(text);
    const ids = parts && encoded(tokenizer, parts.own);
    const counts = new Map<number, number>();
    for (const id of ids ?? []) counts.set(id, (counts.get(id) ?? 0) + 1);
    const chosen = tokens
      ? closure(
          vocabulary,
          tokens.map((one) => idOf(vocabulary, one)),
          named,
        )
      : choose(vocabulary, counts, keep!, named);
    const made = write(opening, gguf, vocabulary, chosen);
    const same = chosen.ids.length === vocabulary.tokens.length ? sameFile(opening, files.weights) : null;
    const file = same ?? made.file;
    const stays = new Set(chosen.ids);
    const bytesBefore = sizeOf(files.weights);
    return {
      file,
      before: vocabulary.tokens.length,
      after: chosen.ids.length,
      bytesBefore,
      bytesAfter: file.size,
      ids: chosen.ids,
      coverage: ids && ids.length > 0 ? ids.filter((id) => stays.has(id)).length / ids.length : null,
      heldOut: parts && heldOut(tokenizer, made.tokenizer, parts.other),
    };
  });
}

/** The old id of each token of a slice; null of a model that is none. */
export const slicedIds = (gguf: Gguf): ArrayLike<number> | null => gguf.numbers(IDS_KEY);

/** The ids of a slice in a model that may itself be one; null where that one lacks some of them. */
export function idsWithin(whole: ArrayLike<number> | null, slice: ArrayLike<number> | null): ArrayLike<number> | null {
  if (!whole || !slice) return slice;
  const place = new Map(Array.from(whole, (id, at) => [id, at] as const));
  const found = Array.from(slice, (id) => place.get(id) ?? -1);
  return found.includes(-1) ? null : found;
}

function heldOut(before: Tokenizer, after: Tokenizer, text: string): { before: number; after: number } {
  return { before: encoded(before, text).length, after: encoded(after, text).length };
}

const encoded = (tokenizer: Tokenizer, text: string): number[] =>
  [...partsOf(text)].flatMap((part) => tokenizer.encode(part, { addSpecial: false }));

/** The tokenizer of a header. */
export const tokenizerOf = (gguf: Parameters<typeof fromGguf>[0]): Tokenizer => {
  const { json, config, warnings } = fromGguf(gguf);
  return new Tokenizer(json, config, warnings);
};

/** The part whose tokens are counted, and the last tenth; cut at a line's end, so that no word is cut. */
export function splitText(text: string): { own: string; other: string } {
  const from = text.length - Math.ceil(HELD_OUT * text.length);
  const line = text.indexOf("\n", from);
  const at = line < 0 ? from : line + 1;
  return { own: text.slice(0, at), other: text.slice(at) };
}

function idOf({ tokens }: Vocabulary, one: number | string): number {
  if (typeof one === "number") return one;
  const id = tokens.indexOf(one);
  if (id >= 0) return id;
  throw new EngineError("BadValue", `slice: the vocabulary has no token ${JSON.stringify(one)}`, {
    option: "tokens",
    found: one.slice(0, 80),
  });
}

function namedIds(gguf: Gguf): number[] {
  const one = Object.entries(gguf.metadata).flatMap(([key, value]) =>
    ID.test(key) && typeof value === "number" ? [value] : [],
  );
  const many = Object.keys(gguf.metadata).flatMap((key) => (IDS.test(key) ? [...(gguf.numbers(key) ?? [])] : []));
  const count = gguf.array(TOKENS)?.count ?? 0;
  return [...one, ...many].filter((id) => Number.isInteger(id) && id >= 0 && id < count);
}

function write(
  opening: Opening,
  gguf: Gguf,
  vocabulary: Vocabulary,
  { ids }: Chosen,
): { file: NewFile; tokenizer: Tokenizer } {
  const { tokens, types, scores, merges } = vocabulary;
  const at = new Map([...ids].map((id, place) => [id, place] as const));
  const texts = [...ids].map((id) => tokens[id]!);
  const values = new Map<string, RawPair>();
  const set = (key: string, value: Parameters<typeof pair>[0]["value"]) => values.set(key, pair({ key, value }));
  set(TOKENS, texts);
  if (types)
    set(
      "tokenizer.ggml.token_type",
      Int32Array.from(ids, (id) => types[id]!),
    );
  if (scores)
    set(
      "tokenizer.ggml.scores",
      Float32Array.from(ids, (id) => scores[id]!),
    );
  if (merges) set(MERGES, keptMerges(merges, new Set(texts)));
  for (const [key, value] of Object.entries(gguf.metadata)) {
    if (ID.test(key) && typeof value === "number" && at.has(value)) set(key, at.get(value)!);
    else if (IDS.test(key)) {
      const kept = [...(gguf.numbers(key) ?? [])].flatMap((id) => at.get(id) ?? []);
      set(key, Int32Array.from(kept));
    } else if (key === `${gguf.architecture}.vocab_size`) set(key, ids.length);
  }
  // The ids of a slice of a slice are those of the first vocabulary.
  const before = gguf.numbers(IDS_KEY);
  set(
    IDS_KEY,
    Int32Array.from(ids, (id) => before?.[id] ?? id),
  );
  const made = gguf.tensors.map((tensor) =>
    ROWS.includes(tensor.name) ? cut(tensor, ids, tokens.length) : kept(tensor, [whole(tensor)]),
  );
  if (gguf.get(SIZE_LABEL) !== undefined) set(SIZE_LABEL, sizeLabel(parameters(made)));
  const pairs = changed(gguf.pairs, values);
  const file = newGguf(opening, gguf, pairs, made);
  return { file, tokenizer: slicedTokenizer(gguf, vocabulary, ids, values) };
}

/** A matrix with the rows of some tokens. Neighbours are read as one range. */
function cut(tensor: GgufTensor, ids: Uint32Array, count: number) {
  const { file, offset, bytes, dims } = tensor;
  const vector = dims.length === 1;
  const rows = vector ? dims[0]! : rowsOf(tensor);
  if (rows < count) {
    throw new EngineError("ShapeMismatch", `${tensor.name}: ${rows} rows for ${count} tokens`, {
      tensor: tensor.name,
      expected: `at least ${count} rows`,
      found: String(rows),
    });
  }
  const row = vector ? bytes / rows : rowBytes(tensor);
  if (isI2s(tensor) && dims[0]! % 128 !== 0) {
    const reason = `${tensor.name}: rows of ${dims[0]} values share bytes in I2_S`;
    throw new EngineError("UnsupportedSetting", reason, {
      tensor: tensor.name,
      expected: "rows of whole groups of 128",
    });
  }
  const parts: Part[] = [];
  for (let i = 0; i < ids.length; ) {
    let end = i + 1;
    while (end < ids.length && ids[end] === ids[end - 1]! + 1) end++;
    parts.push({ file, offset: offset + ids[i]! * row, length: (end - i) * row });
    i = end;
  }
  if (isI2s(tensor)) parts.push({ file, offset: offset + bytes - I2S_TAIL, length: I2S_TAIL });
  const shape = vector ? [ids.length] : [dims[0]!, ids.length];
  return { ...kept(tensor, parts), dims: shape };
}

/** The new file's tokenizer, made of the header's pairs as a load makes it. */
function slicedTokenizer(
  gguf: Gguf,
  { tokens, types, scores, merges }: Vocabulary,
  ids: Uint32Array,
  values: ReadonlyMap<string, RawPair>,
): Tokenizer {
  const header = joined([...values.values()]);
  const metadata: Record<string, unknown> = { ...gguf.metadata };
  const at = new Map([...ids].map((id, place) => [id, place] as const));
  for (const [key, value] of Object.entries(metadata)) {
    if (ID.test(key) && typeof value === "number") metadata[key] = at.get(value) ?? value;
  }
  const arrays = {
    [TOKENS]: tokens,
    "tokenizer.ggml.token_type": types,
    "tokenizer.ggml.scores": scores,
    [MERGES]: merges,
  };
  for (const key of Object.keys(arrays)) {
    const place = header.places.get(key);
    if (arrays[key as keyof typeof arrays] && place) metadata[key] = place;
  }
  const get = (key: string) => {
    const value = metadata[key];
    return typeof value === "object" ? undefined : (value as string | number | boolean | undefined);
  };
  const array = (key: string) => {
    const value = metadata[key];
    return typeof value === "object" ? (value as ReturnType<Gguf["array"]>) : undefined;
  };
  return tokenizerOf({ get, array, header: header.bytes });
}

/** Pairs one behind another, and where the arrays among them lie. */
function joined(pairs: readonly RawPair[]) {
  const bytes = new Uint8Array(pairs.reduce((sum, { bytes }) => sum + bytes.length, 0));
  const places = new Map<string, NonNullable<ReturnType<Gguf["array"]>>>();
  let at = 0;
  for (const { key, bytes: own } of pairs) {
    bytes.set(own, at);
    const view = new DataView(own.buffer, own.byteOffset, own.byteLength);
    const from = 8 + Number(view.getBigUint64(0, true));
    if (view.getUint32(from, true) === 9) {
      places.set(key, {
        elementType: view.getUint32(from + 4, true),
        count: Number(view.getBigUint64(from + 8, true)),
        offset: at + from + 16,
        length: own.length - from - 16,
      });
    }
    at += own.length;
  }
  return { bytes, places };
}
