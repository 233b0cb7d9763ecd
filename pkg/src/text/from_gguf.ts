/** A GGUF's embedded tokenizer as the library's tokenizer.json and tokenizer_config.json. */

import { EngineError } from "../types/errors.ts";
import { brief } from "./brief.ts";
import { type GgufText, readNumbers, readStrings } from "./gguf.ts";
import { MAX_MERGE_TEXT, MAX_MERGE_WORK, MAX_MERGES, MAX_SCORED_MERGES, MAX_TOKEN, MAX_VOCAB } from "./limits.ts";
import { findPreTokenizer, PRE_TOKENIZERS, type PreTokenizer } from "./pretokenizers.ts";
import type { AddedToken, Bpe, Part, ScoredMerges, TokenizerConfig, TokenizerJson } from "./tokenizer_json.ts";

/** Values of `tokenizer.ggml.token_type`. */
export const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const UNUSED = 5;
export const BYTE = 6;

export const SPACE = "\u2581";

export interface TokenizerFiles {
  json: TokenizerJson;
  config: TokenizerConfig;
  warnings: string[];
}

export function fromGguf(gguf: GgufText): TokenizerFiles {
  const model = gguf.get("tokenizer.ggml.model");
  if (model === "gpt2") return new Reader(gguf).byteLevel();
  if (model === "llama") return new Reader(gguf).sentencePiece();
  throw unknown("tokenizer.ggml.model", model, ["gpt2 (byte-level BPE)", "llama (SentencePiece BPE)"]);
}

class Reader {
  readonly warnings: string[] = [];
  readonly gguf: GgufText;
  readonly tokens: string[];
  readonly types: Float64Array | null;

  constructor(gguf: GgufText) {
    this.gguf = gguf;
    const tokens = readStrings(gguf, "tokenizer.ggml.tokens", MAX_VOCAB);
    if (!tokens) throw missing("tokenizer.ggml.tokens");
    this.tokens = tokens;
    this.types = this.perToken("tokenizer.ggml.token_type");
  }

  byteLevel(): TokenizerFiles {
    const merges = readStrings(this.gguf, "tokenizer.ggml.merges", MAX_MERGES);
    if (!merges) throw missing("tokenizer.ggml.merges");
    const bos = this.tokenId("bos", null);
    const pre = this.preTokenizer(bos);
    const splits = pre.splits.map(
      (pattern): Part => ({ type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false }),
    );
    return this.files({
      ids: { bos, eos: this.tokenId("eos", null), unk: this.tokenId("unknown", null) },
      addBos: pre.addBos,
      normalizer: pre.nfc ? { type: "NFC" } : null,
      pre_tokenizer: { type: "Sequence", pretokenizers: [...splits, byteLevel()] },
      decoder: byteLevel(),
      model: (vocab) => ({ type: "BPE", vocab, merges, ignore_merges: pre.ignoreMerges }),
    });
  }

  sentencePiece(): TokenizerFiles {
    const scores = this.perToken("tokenizer.ggml.scores");
    if (!scores) throw missing("tokenizer.ggml.scores");
    const ids = { bos: this.tokenId("bos", 1), eos: this.tokenId("eos", 2), unk: this.tokenId("unknown", 0) };
    const prefix = this.flag("tokenizer.ggml.add_space_prefix") ?? true;
    const spaces: Part = { type: "Replace", pattern: { String: " " }, content: SPACE };
    const decoders: Part[] = [
      { type: "Replace", pattern: { String: SPACE }, content: " " },
      { type: "ByteFallback" },
      { type: "Fuse" },
    ];
    if (prefix) decoders.push({ type: "Strip", content: " ", start: 1, stop: 0 });
    return this.files({
      ids,
      addBos: true,
      normalizer: prefix ? { type: "Sequence", normalizers: [{ type: "Prepend", prepend: SPACE }, spaces] } : spaces,
      pre_tokenizer: null,
      decoder: { type: "Sequence", decoders },
      model: (vocab) => ({
        type: "BPE",
        vocab,
        merges: [],
        scored: mergesByScore(this.tokens, this.types, scores),
        unk_token: ids.unk === null ? null : (this.tokens[ids.unk] ?? null),
        fuse_unk: true,
        byte_fallback: true,
      }),
    });
  }

  /** The ids by token, and the added tokens. Without types in the file, the `special` ids are control tokens. */
  private vocabulary(special: ReadonlySet<number | null>): { vocab: Record<string, number>; added: AddedToken[] } {
    // No prototype: a token may be called __proto__.
    const vocab: Record<string, number> = Object.create(null);
    const added: AddedToken[] = [];
    const seen = new Set<string>();
    for (let id = 0; id < this.tokens.length; id++) {
      const content = this.tokens[id] as string;
      const type = this.types?.[id] ?? (special.has(id) ? CONTROL : NORMAL);
      if (type === UNUSED || content === "") continue;
      if (content.length > MAX_TOKEN) throw tooLong(id, content.length);
      if (seen.has(content)) {
        throw new EngineError("BadTokenizer", `tokenizer.ggml.tokens: ${brief(JSON.stringify(content))} occurs twice`, {
          key: "tokenizer.ggml.tokens",
          found: brief(content),
        });
      }
      seen.add(content);
      if (type === CONTROL || type === USER_DEFINED || type === UNKNOWN) {
        added.push({
          id,
          content,
          special: type !== USER_DEFINED,
          normalized: false,
          lstrip: false,
          rstrip: false,
          single_word: false,
        });
      }
      vocab[content] = id;
    }
    return { vocab, added };
  }

  /** What both kinds share: vocabulary, added tokens, BOS and EOS, config. */
  private files(kind: {
    ids: { bos: number | null; eos: number | null; unk: number | null };
    addBos: boolean;
    normalizer: Part | null;
    pre_tokenizer: Part | null;
    decoder: Part;
    model: (vocab: Record<string, number>) => Bpe;
  }): TokenizerFiles {
    const { bos, eos, unk } = kind.ids;
    const eot = this.tokenId("eot", null);
    const pad = this.tokenId("padding", null);
    const addBos = this.adds("bos", bos, kind.addBos);
    const addEos = this.adds("eos", eos, false);

    const { vocab, added } = this.vocabulary(new Set([bos, eos, eot, unk]));
    const text = (id: number | null) => (id === null ? null : (this.tokens[id] ?? null));
    const template = this.gguf.get("tokenizer.chat_template");
    return {
      json: {
        added_tokens: added,
        normalizer: kind.normalizer,
        pre_tokenizer: kind.pre_tokenizer,
        post_processor: around(this.tokens, addBos ? bos : null, addEos ? eos : null),
        decoder: kind.decoder,
        model: kind.model(vocab),
      },
      config: {
        bos_token: text(bos),
        eos_token: text(eos),
        unk_token: text(unk),
        pad_token: text(pad),
        eot_token: text(eot),
        add_bos_token: addBos,
        add_eos_token: addEos,
        clean_up_tokenization_spaces: false,
        ...(typeof template === "string" ? { chat_template: template } : {}),
      },
      warnings: this.warnings,
    };
  }

  private preTokenizer(bos: number | null): PreTokenizer {
    const key = "tokenizer.ggml.pre";
    const name = this.gguf.get(key);
    if (name === undefined || name === "") return this.withoutName(bos);
    const found = typeof name === "string" ? findPreTokenizer(name) : undefined;
    if (!found)
      throw unknown(
        key,
        name,
        PRE_TOKENIZERS.flatMap((one) => one.names),
      );
    return found;
  }

  /**
   * Microsoft's converter left the name out of BitNet files, and every converter did before April 2024. Where the vocabulary or the
   * architecture tells which it is, the file need not.
   */
  private withoutName(bos: number | null): PreTokenizer {
    const architecture = String(this.gguf.get("general.architecture"));
    const llama3 = this.tokens.length === 128256 || (bos !== null && this.tokens[bos] === "<|begin_of_text|>");
    let [name, why] = ["default", "no name means this one"];
    if (llama3 && /^(?:bitnet-|llama$)/.test(architecture))
      [name, why] = ["llama-bpe", `a file of architecture ${architecture} with Llama 3's vocabulary`];
    else if (/^qwen[23]$/.test(architecture)) [name, why] = ["qwen2", `a file of architecture ${architecture}`];
    this.warnings.push(`tokenizer.ggml.pre is missing: text is split as "${name}" (${why})`);
    return findPreTokenizer(name as string) as PreTokenizer;
  }

  private perToken(key: string): Float64Array | null {
    const numbers = readNumbers(this.gguf, key, MAX_VOCAB);
    if (numbers && numbers.length < this.tokens.length) {
      throw new EngineError("BadTokenizer", `${key}: ${numbers.length} values for ${this.tokens.length} tokens`, {
        key,
        expected: String(this.tokens.length),
        found: String(numbers.length),
      });
    }
    return numbers;
  }

  private tokenId(name: string, otherwise: number | null): number | null {
    const key = `tokenizer.ggml.${name}_token_id`;
    const id = this.gguf.get(key) ?? otherwise;
    if (id === null) return null;
    if (typeof id === "number" && Number.isInteger(id) && id >= 0 && id < this.tokens.length) return id;
    if (name === "bos" || name === "eos") {
      throw new EngineError("BadTokenizer", `${key}: ${brief(String(id))} is not an id below ${this.tokens.length}`, {
        key,
        expected: `an id below ${this.tokens.length}`,
        found: brief(String(id)),
      });
    }
    this.warnings.push(`${key}: ${brief(String(id))} is not an id below ${this.tokens.length}; ignored`);
    return null;
  }

  private flag(key: string): boolean | undefined {
    const value = this.gguf.get(key);
    if (value === undefined || typeof value === "boolean") return value;
    throw new EngineError("BadTokenizer", `${key}: expected a boolean, got ${brief(String(value))}`, {
      key,
      found: brief(String(value)),
    });
  }

  private adds(name: "bos" | "eos", id: number | null, otherwise: boolean): boolean {
    const key = `tokenizer.ggml.add_${name}_token`;
    const said = this.flag(key);
    if (id !== null) return said ?? otherwise;
    if (said) {
      throw new EngineError("BadTokenizer", `${key} is true but tokenizer.ggml.${name}_token_id is missing`, { key });
    }
    if (said === undefined && otherwise)
      this.warnings.push(`tokenizer.ggml.${name}_token_id is missing: none is added`);
    return false;
  }
}

const byteLevel = (): Part => ({ type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false });

/** The post-processor that puts BOS before and EOS after a text. */
function around(tokens: readonly string[], bos: number | null, eos: number | null): Part | null {
  if (bos === null && eos === null) return null;
  const item = (id: number) => ({ SpecialToken: { id: tokens[id], type_id: 0 } });
  const single = [
    ...(bos === null ? [] : [item(bos)]),
    { Sequence: { id: "A", type_id: 0 } },
    ...(eos === null ? [] : [item(eos)]),
  ];
  const special_tokens = Object.fromEntries(
    [bos, eos]
      .filter((id) => id !== null)
      .map((id) => [tokens[id], { id: tokens[id], ids: [id], tokens: [tokens[id]] }]),
  );
  return {
    type: "TemplateProcessing",
    single,
    pair: [...single, { Sequence: { id: "B", type_id: 1 } }],
    special_tokens,
  };
}

/**
 * A scored vocabulary merges the adjacent pair whose concatenation scores highest, the leftmost of equals. As merges:
 * every way to put a token together from two others, ranked by its score; equal scores share a rank. The number of
 * merges is not in the file, so both the merges and the work to find them are counted while they are made.
 */
function mergesByScore(tokens: readonly string[], types: Float64Array | null, scores: Float64Array): ScoredMerges {
  const normal = (id: number) => !types || types[id] === NORMAL || types[id] === 0;
  const known = new Set(tokens.filter((_, id) => normal(id)));
  let ids = new Uint32Array(1024);
  let cuts = new Uint16Array(1024);
  let [count, work, length] = [0, 0, 0];
  for (let id = 0; id < tokens.length; id++) {
    if (!normal(id)) continue;
    const token = tokens[id] as string;
    if (!Number.isFinite(scores[id])) throw badScore(id, scores[id] as number);
    work += token.length * token.length;
    if (work > MAX_MERGE_WORK) throw tooManyMerges(`more than ${MAX_MERGE_WORK} characters to compare`);
    let at = 0;
    for (const char of token) {
      at += char.length;
      if (at === token.length) break;
      if (!known.has(token.slice(0, at)) || !known.has(token.slice(at))) continue;
      length += token.length;
      if (count === MAX_SCORED_MERGES) throw tooManyMerges(`more than ${MAX_SCORED_MERGES} merges`);
      if (length > MAX_MERGE_TEXT) throw tooManyMerges(`merges of more than ${MAX_MERGE_TEXT} characters`);
      if (count === ids.length) {
        ids = grown(ids, new Uint32Array(2 * count));
        cuts = grown(cuts, new Uint16Array(2 * count));
      }
      ids[count] = id;
      cuts[count++] = at;
    }
  }
  // Sorting is stable, so merges of one score keep the order of the vocabulary.
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  order.sort((a, b) => scores[ids[b]!]! - scores[ids[a]!]! || a - b);
  const ranks = new Uint32Array(count);
  for (let i = 1; i < count; i++) {
    const same = scores[ids[order[i]!]!] === scores[ids[order[i - 1]!]!];
    ranks[i] = ranks[i - 1]! + (same ? 0 : 1);
  }
  return { tokens, ids: order.map((i) => ids[i]!), cuts: Uint16Array.from(order, (i) => cuts[i]!), ranks };
}

function grown<T extends Uint32Array | Uint16Array>(old: T, larger: T): T {
  larger.set(old);
  return larger;
}

function tooManyMerges(found: string): EngineError {
  const key = "tokenizer.ggml.tokens";
  return new EngineError("BadTokenizer", `${key}: its tokens stand for ${found}`, { key, found });
}

function tooLong(id: number, length: number): EngineError {
  const key = "tokenizer.ggml.tokens";
  return new EngineError("BadTokenizer", `${key}: token ${id} is ${length} long, more than the ${MAX_TOKEN} allowed`, {
    key,
    expected: `at most ${MAX_TOKEN}`,
    found: String(length),
  });
}

function badScore(id: number, score: number): EngineError {
  const key = "tokenizer.ggml.scores";
  return new EngineError("BadTokenizer", `${key}: the score of token ${id} is ${score}`, { key, found: String(score) });
}

function missing(key: string): EngineError {
  return new EngineError("BadTokenizer", `${key} is missing`, { key });
}

function unknown(key: string, found: unknown, known: readonly string[]): EngineError {
  if (found === undefined) return missing(key);
  const expected = known.join(", ");
  return new EngineError(
    "BadTokenizer",
    `${key}: ${brief(JSON.stringify(found))} is not known; known are ${expected}`,
    {
      key,
      expected,
      found: brief(String(found)),
    },
  );
}
