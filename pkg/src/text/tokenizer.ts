/** A model's tokenizer: text to ids and back, over the field's own library. */

import { EngineError } from "../types/errors.ts";
import { Encoder } from "./encoder.ts";
import { attempt, bad, build, type Pipeline, surroundings } from "./library.ts";
import { MAX_TEXT } from "./limits.ts";
import { type Pieces, pieces } from "./pieces.ts";
import { TextStream } from "./stream.ts";
import { type AddedToken, EMPTY, type TokenizerConfig, type TokenizerJson, tokenContent } from "./tokenizer_json.ts";

export interface EncodeOptions {
  addSpecial?: boolean;
  seams?: readonly number[] | null;
}

export interface NamedToken {
  id: number;
  text: string;
}

/** Added tokens that end a turn or a text in every model that has them, whether its files call them special or not. */
const ENDS = ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"];

const NONE = new Uint8Array(0);

export class Tokenizer {
  /** `byte-level BPE`, `SentencePiece BPE` or `Unigram`. */
  readonly kind: string;
  /** Ids run from 0 to one below this, added tokens' included. */
  readonly vocab: number;
  readonly bos: NamedToken | null;
  readonly eos: NamedToken | null;
  /** Ids that end a generation, the one of `eos` first. */
  readonly ends: readonly NamedToken[];
  /** Whether `encode` puts BOS before a text, and EOS after it. */
  readonly addsBos: boolean;
  readonly addsEos: boolean;
  /** Special tokens by the names that chat templates know: `bos_token`, `eos_token` and their like. */
  readonly specialTokens: Readonly<Record<string, string>>;
  readonly warnings: readonly string[];
  /** UTF-16 units of a text that one token stands for, at most. */
  readonly longest: number;
  /** Spaces that decoding drops at the start of a text. */
  readonly leadingSpaces: number;

  readonly #pipeline: Pipeline;
  readonly #pieces: Pieces;
  readonly #added: ReadonlyMap<number, AddedToken>;
  readonly #encoder: Encoder;
  /** Ids that a post-processor puts before and after a text. */
  readonly #before: readonly number[];
  readonly #after: readonly number[];

  /**
   * @param file tokenizer.json, parsed, or what `fromGguf` made
   * @param config tokenizer_config.json, parsed, or null where there is none
   */
  constructor(file: Partial<TokenizerJson>, config: TokenizerConfig | null, warnings: readonly string[] = []) {
    const json = { ...EMPTY, ...file } as TokenizerJson;
    this.#pieces = attempt("decoder", () => pieces(json.decoder));
    const around = surroundings(json.post_processor);
    if (!around) throw bad("post_processor", "is of a kind not supported");
    this.#pipeline = attempt("", () => build(json));
    this.#added = new Map(json.added_tokens.map((token) => [token.id, token]));
    this.#encoder = attempt("added_tokens", () => new Encoder(this.#pipeline, json.added_tokens));
    const id = (token: string) => {
      const id = this.#encoder.id(token);
      if (id === undefined) throw bad("post_processor", "adds a token that the vocabulary lacks");
      return id;
    };
    this.#before = around.before.map(id);
    this.#after = around.after.map(id);
    this.leadingSpaces = this.#pieces.leadingSpaces;
    this.kind = json.model.type === "Unigram" ? "Unigram" : isByteLevel(json) ? "byte-level BPE" : "SentencePiece BPE";
    const { vocab } = this.#pipeline.model;
    this.vocab = vocab.length;
    // Others may drop any length of text: what they normalize, spaces beside a token, what they do not know.
    const exact = isByteLevel(json) && !json.normalizer && !json.added_tokens.some((one) => one.lstrip || one.rstrip);
    const texts = [...vocab, ...json.added_tokens.map(({ content }) => content)];
    this.longest = exact ? texts.reduce((most, text) => Math.max(most, text?.length ?? 0), 1) : MAX_TEXT;

    const notes = [...warnings];
    this.specialTokens = specialTokens(config);
    this.bos = this.#named(this.specialTokens.bos_token ?? around.before[0], notes);
    this.eos = this.#named(this.specialTokens.eos_token, notes);
    this.addsBos = this.bos !== null && around.before[0] === this.bos.text;
    this.addsEos = this.eos !== null && around.after[0] === this.eos.text;
    this.ends = this.#ends(config);
    for (const [key, adds] of [["add_bos_token", this.addsBos] as const, ["add_eos_token", this.addsEos] as const]) {
      if (typeof config?.[key] === "boolean" && config[key] !== adds) {
        notes.push(`tokenizer_config.json says ${key}: ${config[key]}, tokenizer.json does otherwise and is followed`);
      }
    }
    if (json.added_tokens.some((token) => token.single_word))
      notes.push("tokenizer.json: single_word of added tokens is ignored");
    this.warnings = notes;
    this.encode("");
  }

  /**
   * Special tokens written out in the text become those tokens.
   * @param options.addSpecial Add what the tokenizer adds: BOS, EOS. @default true
   * @param options.seams Where the text is a rendered chat: places that no special token is read across.
   */
  encode(text: string, { addSpecial = true, seams = null }: EncodeOptions = {}): number[] {
    if (text.length > MAX_TEXT) {
      throw new EngineError(
        "InvalidArgument",
        `a text of length ${text.length}; at most ${MAX_TEXT} can be encoded at once`,
        {
          expected: `at most ${MAX_TEXT}`,
          found: String(text.length),
        },
      );
    }
    const ids = attempt("", () => this.#encoder.encode(text, seams));
    return addSpecial ? [...this.#before, ...ids, ...this.#after] : ids;
  }

  /** Texts of the tokens that no text of a message may become. */
  get special(): readonly string[] {
    return this.#encoder.special;
  }

  /**
   * Bytes that form no character show as U+FFFD, ids without a token as nothing.
   * @param options.special Keep special tokens in the text. @default true
   */
  decode(ids: readonly number[], { special = true }: { special?: boolean } = {}): string {
    const stream = new TextStream(this, { special });
    let text = "";
    for (const id of ids) text += stream.push(id);
    return text + stream.flush();
  }

  /** A token as the vocabulary spells it, or null where the id has none. */
  tokenText(id: number): string | null {
    return this.#pipeline.model.vocab[id] ?? null;
  }

  /** The bytes an id adds to a text: none for a special token unless it is to be kept. */
  bytes(id: number, special: boolean): Uint8Array {
    if (!Number.isInteger(id) || id < 0) {
      throw new EngineError("InvalidArgument", `${String(id)} is not a token id`, { found: String(id) });
    }
    const added = this.#added.get(id);
    if (added) return added.special && !special ? NONE : this.#pieces.added(added.content);
    const token = this.tokenText(id);
    return token === null ? NONE : this.#pieces.bytes(token);
  }

  #named(text: string | undefined, notes: string[]): NamedToken | null {
    if (text === undefined) return null;
    const id = this.#encoder.id(text);
    if (id !== undefined) return { id, text };
    notes.push(`the tokenizer's configuration names ${JSON.stringify(text)}, which is not in the vocabulary`);
    return null;
  }

  #ends(config: TokenizerConfig | null): NamedToken[] {
    const ends = this.eos ? [this.eos] : [];
    const add = (token: NamedToken | null) => {
      if (token && !ends.some((one) => one.id === token.id)) ends.push(token);
    };
    add(this.#named(tokenContent(config?.eot_token) ?? undefined, []));
    for (const text of ENDS) {
      const token = this.#named(text, []);
      if (token && this.#added.has(token.id)) add(token);
    }
    return ends;
  }
}

function specialTokens(config: TokenizerConfig | null): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const [key, value] of Object.entries(config ?? {})) {
    const text = key.endsWith("_token") ? tokenContent(value) : null;
    if (text !== null) tokens[key] = text;
  }
  return tokens;
}

function isByteLevel({ decoder }: TokenizerJson): boolean {
  return (
    decoder?.type === "ByteLevel" ||
    (Array.isArray(decoder?.decoders) && decoder.decoders.some((one) => one.type === "ByteLevel"))
  );
}
