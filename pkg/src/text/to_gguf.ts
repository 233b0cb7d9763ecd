/** tokenizer.json and tokenizer_config.json as GGUF metadata, the inverse of `fromGguf`: exact, or refused by name. */

import { EngineError } from "../types/errors.ts";
import { BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED } from "./from_gguf.ts";
import { attempt, bad, build, preTokenizers, surroundings } from "./library.ts";
import { MAX_VOCAB } from "./limits.ts";
import { GPT2, PRE_TOKENIZERS, type PreTokenizer } from "./pretokenizers.ts";
import {
  type Bpe,
  EMPTY,
  type Part,
  type TokenizerConfig,
  type TokenizerJson,
  tokenContent,
} from "./tokenizer_json.ts";

/** A metadata entry to write. Numbers are u32, arrays are of strings, f32 or i32. */
export interface GgufEntry {
  key: string;
  value: string | number | boolean | readonly string[] | Float32Array | Int32Array;
}

export interface ToGgufOptions {
  /** Rows of the model's embedding, where they are more than the tokenizer's ids: the rest are written as unused. */
  vocab?: number;
  /** The chat template to embed. */
  template?: string | null;
}

export function toGguf(
  file: Partial<TokenizerJson>,
  config: TokenizerConfig | null,
  options: ToGgufOptions = {},
): GgufEntry[] {
  const json = { ...EMPTY, ...file } as TokenizerJson;
  if (json.model?.type === "Unigram") throw bad("model.type", 'GGUF cannot hold "Unigram"; it holds BPE');
  // What a load refuses is not written either: a token without an id would leave a hole in the vocabulary.
  attempt("", () => build(json));
  const model = json.model as Bpe;
  const scored = model.byte_fallback === true;
  const tokens = spell(json, model, options.vocab ?? 0);
  const types = tokenTypes(json, model, tokens.length, scored);
  const entries: GgufEntry[] = [
    ...(scored ? sentencePiece(json, model, tokens, types) : byteLevel(json, model)),
    { key: "tokenizer.ggml.tokens", value: tokens },
    { key: "tokenizer.ggml.token_type", value: types },
    ...specials(json, config, tokens),
  ];
  if (options.template) entries.push({ key: "tokenizer.chat_template", value: options.template });
  return entries;
}

function byteLevel(json: TokenizerJson, model: Bpe): GgufEntry[] {
  const pre = namedPreTokenizer(json, model);
  if (json.decoder?.type !== "ByteLevel") throw bad("decoder", "GGUF's gpt2 kind means ByteLevel");
  if (model.scored) throw bad("model.scored", "GGUF's gpt2 kind has no scores");
  return [
    { key: "tokenizer.ggml.model", value: "gpt2" },
    { key: "tokenizer.ggml.pre", value: pre.names[0] as string },
    { key: "tokenizer.ggml.merges", value: model.merges.map(spelled) },
  ];
}

/** The name that stands for exactly these splits, merging rule and normalizer. */
function namedPreTokenizer(json: TokenizerJson, model: Bpe): PreTokenizer {
  const steps = preTokenizers(json.pre_tokenizer);
  const last = steps.pop();
  const splits = steps.map((step) => (step.pattern as { Regex?: string } | undefined)?.Regex);
  if (last?.use_regex !== false) splits.push(GPT2);
  const nfc = json.normalizer?.type === "NFC";
  const found = PRE_TOKENIZERS.find(
    (pre) =>
      pre.splits.length === splits.length &&
      pre.splits.every((pattern, i) => pattern === splits[i]) &&
      pre.ignoreMerges === (model.ignore_merges === true) &&
      pre.nfc === nfc,
  );
  const bytes = last?.type === "ByteLevel" && last.add_prefix_space !== true;
  if (found && bytes && (nfc || json.normalizer === null)) return found;
  const what = JSON.stringify({
    pre_tokenizer: json.pre_tokenizer,
    normalizer: json.normalizer,
    ignore_merges: model.ignore_merges,
  });
  throw new EngineError("BadTokenizer", `tokenizer.ggml.pre has no name for what this tokenizer does: ${what}`, {
    key: "tokenizer.ggml.pre",
    expected: PRE_TOKENIZERS.map((pre) => pre.names[0]).join(", "),
    found: what,
  });
}

function sentencePiece(json: TokenizerJson, model: Bpe, tokens: readonly string[], types: Int32Array): GgufEntry[] {
  if (json.pre_tokenizer !== null) throw bad("pre_tokenizer", "GGUF's llama kind has none");
  return [
    { key: "tokenizer.ggml.model", value: "llama" },
    { key: "tokenizer.ggml.pre", value: "default" },
    { key: "tokenizer.ggml.scores", value: scores(model, tokens, types) },
    { key: "tokenizer.ggml.add_space_prefix", value: hasSpacePrefix(json.normalizer) },
  ];
}

/** GGUF's llama kind escapes spaces, and may put one first: nothing else can be said. */
function hasSpacePrefix(normalizer: Part | null): boolean {
  const steps = normalizer?.type === "Sequence" ? (normalizer.normalizers as Part[]) : normalizer ? [normalizer] : [];
  const last = steps.at(-1);
  const escapes =
    last?.type === "Replace" && (last.pattern as { String?: string }).String === " " && last.content === SPACE;
  if (escapes && steps.length === 1) return false;
  if (escapes && steps.length === 2 && steps[0]?.type === "Prepend" && steps[0].prepend === SPACE) return true;
  throw bad(
    "normalizer",
    `GGUF's llama kind only escapes spaces and may prepend one; found ${JSON.stringify(normalizer)}`,
  );
}

/**
 * Merges as scores. A score belongs to the token that a merge makes, so all merges into one token must stand together,
 * and every way to make it must be among them.
 */
function scores({ merges, scored }: Bpe, tokens: readonly string[], types: Int32Array): Float32Array {
  const made = new Map<string, { score: number; ways: number }>();
  const count = scored ? scored.ids.length : merges.length;
  let last: string | null = null;
  for (let i = 0; i < count; i++) {
    const token = scored ? scored.tokens[scored.ids[i]!]! : pair(merges[i]!, i).join("");
    const known = made.get(token);
    if (known && last !== token)
      throw bad("model.merges", `the merges into ${JSON.stringify(token)} do not stand together`);
    if (known) known.ways++;
    else made.set(token, { score: -(scored?.ranks[i] ?? made.size), ways: 1 });
    last = token;
  }
  const normal = new Set(tokens.filter((_, id) => types[id] === NORMAL));
  // No merge makes the others, so their score is never asked for.
  const result = new Float32Array(tokens.length).fill(-count);
  for (let id = 0; id < tokens.length; id++) {
    if (types[id] !== NORMAL) continue;
    const token = tokens[id] as string;
    let ways = 0;
    for (let at = 1; at < token.length; at++) if (normal.has(token.slice(0, at)) && normal.has(token.slice(at))) ways++;
    const { score, ways: merged } = made.get(token) ?? { score: -count, ways: 0 };
    if (ways !== merged) throw bad("model.merges", `not every way to make ${JSON.stringify(token)} is a merge`);
    result[id] = score;
  }
  return result;
}

/** Every token by id; ids without one get a name of their own. */
function spell(json: TokenizerJson, model: Bpe, rows: number): string[] {
  const byId = new Map<number, string>();
  for (const [token, id] of Object.entries(model.vocab)) byId.set(id, token);
  for (const { id, content } of json.added_tokens) byId.set(id, content);
  let length = rows;
  for (const id of byId.keys()) length = Math.max(length, id + 1);
  if (length > MAX_VOCAB) throw bad("model.vocab", `${length} ids, more than ${MAX_VOCAB}`);
  return Array.from({ length }, (_, id) => byId.get(id) ?? `[PAD${id}]`);
}

function tokenTypes(json: TokenizerJson, model: Bpe, length: number, scored: boolean): Int32Array {
  const result = new Int32Array(length).fill(UNUSED);
  for (const [token, id] of Object.entries(model.vocab))
    result[id] = scored && /^<0x[0-9A-F]{2}>$/.test(token) ? BYTE : NORMAL;
  for (const { id, special } of json.added_tokens) result[id] = special ? CONTROL : USER_DEFINED;
  if (model.unk_token) result[model.vocab[model.unk_token] ?? -1] = UNKNOWN;
  return result;
}

function specials(json: TokenizerJson, config: TokenizerConfig | null, tokens: readonly string[]): GgufEntry[] {
  const around = surroundings(json.post_processor);
  if (!around || around.before.length > 1 || around.after.length > 1) {
    throw bad("post_processor", "GGUF can only say that BOS comes before and EOS after a text");
  }
  const names: Record<string, string | null> = {
    bos: tokenContent(config?.bos_token) ?? around.before[0] ?? null,
    eos: tokenContent(config?.eos_token) ?? around.after[0] ?? null,
    unknown: tokenContent(config?.unk_token) ?? (json.model as Bpe).unk_token ?? null,
    padding: tokenContent(config?.pad_token),
    eot: tokenContent(config?.eot_token),
  };
  for (const [name, added] of [["bos", around.before[0]] as const, ["eos", around.after[0]] as const]) {
    if (added !== undefined && added !== names[name]) {
      throw bad("post_processor", `adds ${JSON.stringify(added)}, which is not the ${name} token; GGUF cannot say so`);
    }
  }
  const entries: GgufEntry[] = [];
  for (const [name, token] of Object.entries(names)) {
    const id = token === null ? -1 : tokens.indexOf(token);
    if (id >= 0) entries.push({ key: `tokenizer.ggml.${name}_token_id`, value: id });
  }
  entries.push(
    { key: "tokenizer.ggml.add_bos_token", value: around.before.length === 1 },
    { key: "tokenizer.ggml.add_eos_token", value: around.after.length === 1 },
  );
  return entries;
}

/** What is spelled as GGUF spells it stays the same string: there may be hundreds of thousands. */
function spelled(merge: string | readonly [string, string], index: number): string {
  const spaces = typeof merge === "string" && merge.indexOf(" ") >= 0 && merge.indexOf(" ") === merge.lastIndexOf(" ");
  return spaces ? (merge as string) : pair(merge, index).join(" ");
}

function pair(merge: string | readonly [string, string], index: number): [string, string] {
  const parts = typeof merge === "string" ? merge.split(" ") : [...merge];
  if (parts.length !== 2 || parts.some((part) => part.includes(" "))) {
    throw bad("model.merges", `merge ${index} does not have two parts without spaces: ${JSON.stringify(merge)}`);
  }
  return parts as [string, string];
}
