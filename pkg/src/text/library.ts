/**
 * Where `@huggingface/tokenizers` departs from Hugging Face's own tokenizers: tokenizer.json is rewritten into parts that
 * it does get right, and what it would silently get wrong is refused by name.
 */

import {
  BPE,
  ByteLevelPreTokenizer,
  MetaspacePreTokenizer,
  SequenceNormalizer,
  SplitPreTokenizer,
  Unigram,
} from "@huggingface/tokenizers";
import { EngineError } from "../types/errors.ts";
import { brief } from "./brief.ts";
import {
  LATTICE_SPARE,
  MAX_ADDED,
  MAX_ADDED_TEXT,
  MAX_GROWTH,
  MAX_GROWTH_UNITS,
  MAX_LATTICE,
  MAX_MERGES,
  MAX_PARTS,
  MAX_TOKEN,
  MAX_UNIGRAM_TEXT,
  MAX_VOCAB,
} from "./limits.ts";
import { Pattern } from "./pattern.ts";
import { GPT2, PRE_TOKENIZERS } from "./pretokenizers.ts";
import { type Bpe, mergedPair, type Part, type TokenizerJson } from "./tokenizer_json.ts";

/** The library's own takes JavaScript's \s, which counts U+FEFF as a space and U+0085 not. */
const GPT2_UNICODE = new RegExp(GPT2.replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}"), "gu");

const PUNCTUATION = "[!-/:-@\\[-`{-~\\p{P}]";

/** What a text goes through: parts of the library, so far as they are used here. */
export interface Pipeline {
  normalizer: ((text: string) => string) | null;
  pre_tokenizer: ((text: string, options: { section_index: number }) => string[]) | null;
  model: Model;
}

type Model = ((tokens: string[]) => string[]) & {
  tokens_to_ids: Map<string, number>;
  /** Tokens by their ids. */
  vocab: string[];
  unk_token?: string | null;
  unk_token_id?: number;
  /** A text of so many units is going to be encoded. */
  begin?(units: number): void;
};

/**
 * Puts the library's parts together, from descriptions that it runs as Hugging Face does. Its own tokenizer would bring all kinds of
 * parts into a page, a third of them for nothing.
 */
export function build(json: TokenizerJson): Pipeline {
  checkModel(json.model);
  checkAdded(json.added_tokens);
  const steps = preTokenizers(json.pre_tokenizer);
  const normalizer = json.normalizer && boundNormalizer(json.normalizer);
  const model = modelOf(json.model);
  // Added tokens are found by our own encoder; the model only has to know their ids. One that is spelled as a token of the model, in
  // whose alphabet a character is a byte, leaves that one its id.
  for (const { id, content } of json.added_tokens) {
    if (!model.tokens_to_ids.has(content)) model.tokens_to_ids.set(content, id);
    model.vocab[id] = content;
  }
  return {
    normalizer,
    pre_tokenizer: steps.length === 0 ? null : preTokenizerOf(steps),
    model,
  };
}

function preTokenizerOf(steps: readonly Part[]): Pipeline["pre_tokenizer"] {
  const parts = steps.map((step) => {
    if (step.type === "Metaspace") return new MetaspacePreTokenizer(step as never);
    if (step.type === "ByteLevel")
      return Object.assign(new ByteLevelPreTokenizer(step as never), { pattern: GPT2_UNICODE });
    const part = new SplitPreTokenizer(step as never);
    if (part.pattern && step.known !== true) part.pattern = new Pattern((part.pattern as RegExp).source) as never;
    return part;
  });
  return (text, options) => parts.reduce((pieces, part) => part.pre_tokenize(pieces, options), [text]);
}

function modelOf(part: Part): Model {
  const unigram = part.type === "Unigram";
  const model = unigram ? new Unigram(part as never, undefined as never) : new BPE(part as never);
  if (unigram) boundUnigram(model as unknown as UnigramModel);
  const { scored } = part as Bpe;
  if (scored) {
    const ranks = (model as unknown as { bpe_ranks: Map<string, number> }).bpe_ranks;
    for (let i = 0; i < scored.ids.length; i++) ranks.set(JSON.stringify(mergedPair(scored, i)), scored.ranks[i]!);
  }
  // It keeps its input, half of its memory, but reads it no more.
  return Object.assign(model, { config: null, merges: null }) as unknown as Model;
}

interface CharNode {
  is_leaf: boolean;
  children: Map<string, CharNode>;
}

/** What the library keeps of a Unigram model, so far as it is used here. */
interface UnigramModel {
  trie: { root: CharNode; common_prefix_search(chars: string[], start?: number): Iterable<string> };
  populate_nodes(lattice: { begin_nodes: unknown[][]; end_nodes: unknown[][] }): void;
  begin?: Model["begin"];
}

/**
 * Bounds the ways to cut a text into the tokens of a vocabulary. In a run of one letter, tokens that are runs of it begin and end at
 * every place, and each that begins is compared with each that ends there.
 */
function boundUnigram(model: UnigramModel): void {
  const { trie } = model;
  let left = 0;
  const spend = (work: number) => {
    left -= work;
    if (left < 0) throw bad("model", "has too many ways to cut this text into tokens");
  };
  model.begin = (units) => {
    left = MAX_LATTICE * units + LATTICE_SPARE;
  };
  trie.common_prefix_search = function* (chars, start = 0) {
    let node: CharNode | undefined = trie.root;
    for (let i = start; i < chars.length; i++) {
      node = node.children.get(chars[i] as string);
      if (!node) return;
      spend(1);
      if (!node.is_leaf) continue;
      spend(i - start);
      yield chars.slice(start, i + 1).join("");
    }
  };
  const populate = model.populate_nodes.bind(model);
  model.populate_nodes = (lattice) => {
    populate(lattice);
    for (const [at, beginning] of lattice.begin_nodes.entries()) {
      spend(beginning.length * (lattice.end_nodes[at] as unknown[]).length);
    }
  };
}

/** What the library keeps of a normalizer, so far as it is used here. */
interface Normalizer {
  config: Part;
  pattern?: RegExp | null;
  normalize(text: string): string;
}

/** Has every replacement run by patterns that end, and bounds the text that a normalizer makes by the one that it is given. */
function boundNormalizer(part: Part): (text: string) => string {
  const normalizers = parts(part, "normalizer", "normalizers");
  for (const step of normalizers) {
    if (step.type === "Prepend") checkText(step.prepend, "normalizer.prepend");
    if (step.type !== "Replace") continue;
    checkPattern(step.pattern, "normalizer.pattern");
    checkText(step.content, "normalizer.content");
  }
  const steps = new SequenceNormalizer({ normalizers } as never).normalizers as unknown as Normalizer[];
  for (const step of steps) {
    const { Regex: regex } = (step.config.pattern ?? {}) as { Regex?: string };
    if (step.pattern && regex !== undefined) step.pattern = new Pattern(step.pattern.source) as never;
  }
  return (text) => {
    const most = MAX_GROWTH * text.length + MAX_GROWTH_UNITS;
    const growth: Growth = { units: most, matches: most };
    return steps.reduce((made, step) => normalized(step, made, growth), text);
  };
}

/** What is left for one text: units of what is made of it, and replacements. */
interface Growth {
  units: number;
  matches: number;
}

function normalized(step: Normalizer, text: string, growth: Growth): string {
  const { config, pattern } = step;
  if (config.type !== "Replace" || !pattern) return checkGrowth(step.normalize(text), growth);
  const content = config.content as string;
  const made: string[] = [];
  let [size, copied] = [text.length, 0];
  for (const { 0: match, index } of text.matchAll(pattern)) {
    size += content.length - match.length;
    if (size > growth.units || --growth.matches < 0) throw grows();
    made.push(text.slice(copied, index), content);
    copied = index + match.length;
  }
  return made.join("") + text.slice(copied);
}

/** The library warns on the console of a pattern of another kind, and drops the text. */
function checkPattern(pattern: unknown, path: string): void {
  const { Regex: regex, String: text } = (pattern ?? {}) as { Regex?: unknown; String?: unknown };
  if (typeof (regex ?? text) !== "string") throw bad(path, "expected a Regex or a String");
}

function checkText(text: unknown, path: string): void {
  if (typeof text !== "string") throw bad(path, "expected a text");
}

function checkGrowth(text: string, { units }: Growth): string {
  if (text.length > units) throw grows();
  return text;
}

export const grows = (path = "normalizer"): EngineError => bad(path, "makes a text grow without measure");

/** The steps of a part: those of a Sequence, which may hold others, else the part alone. */
export function parts(part: unknown, path: string, key: string): Part[] {
  const steps = [part] as Part[];
  for (let [at, left] = [0, MAX_PARTS]; at < steps.length; left--) {
    const step = steps[at] as Part;
    const inner = step?.type === "Sequence" ? list(step[key], `${path}.${key}`) : null;
    if (typeof step?.type !== "string" || left === 0 || (inner && inner.length > left))
      throw bad(path, `expected at most ${MAX_PARTS} steps, each with a type`);
    if (inner) steps.splice(at, 1, ...(inner as Part[]));
    else at++;
  }
  return steps;
}

/** A pre-tokenizer as a flat list of steps that the library takes apart text with as Hugging Face does. */
export const preTokenizers = (part: Part | null): Part[] =>
  part === null ? [] : parts(part, "pre_tokenizer", "pretokenizers").flatMap(preTokenizer);

function preTokenizer(part: Part): Part[] {
  const path = "pre_tokenizer";
  const isolate = (pattern: string): Part => ({
    type: "Split",
    pattern: { Regex: pattern },
    behavior: "Isolated",
    invert: false,
    known: true,
  });
  const only = (pattern: string): Part => ({ ...isolate(pattern), behavior: "Removed", invert: true });
  switch (part.type) {
    case "ByteLevel":
      return [part];
    case "Digits":
      // The library knows ASCII digits only.
      return [isolate(part.individual_digits === true ? "\\p{N}" : "\\p{N}+")];
    case "Punctuation":
      // The library always takes runs.
      if (part.behavior === "Contiguous") return [isolate(`${PUNCTUATION}+`)];
      if (part.behavior === undefined || part.behavior === "Isolated") return [isolate(PUNCTUATION)];
      throw bad(`${path}.behavior`, `${String(part.behavior)} is not supported`);
    case "Whitespace":
      return [only("\\w+|[^\\w\\s]+")];
    case "WhitespaceSplit":
      return [only("\\S+")];
    case "Metaspace": {
      const replacement = typeof part.replacement === "string" ? part.replacement : "\u2581";
      const scheme = part.prepend_scheme ?? (part.add_prefix_space === false ? "never" : "always");
      const space: Part = { type: "Metaspace", replacement, prepend_scheme: scheme };
      if (replacement.length !== 1) throw bad(`${path}.replacement`, "only one character is supported");
      if (part.split === false) return [space];
      // Each piece begins with its space; the library does not cut at all.
      const mark = `\\u${replacement.charCodeAt(0).toString(16).padStart(4, "0")}`;
      return [space, isolate(`${mark}[^${mark}]*`)];
    }
    case "Split": {
      // Isolated matches and isolated gaps are the same pieces; the library drops the gaps where it is inverted.
      checkPattern(part.pattern, `${path}.pattern`);
      const { Regex: regex } = (part.pattern ?? {}) as { Regex?: unknown };
      const known = typeof regex !== "string" || PRE_TOKENIZERS.some((one) => one.splits.includes(regex));
      if (part.behavior === "Isolated") return [{ ...part, invert: false, known }];
      if (part.behavior === "Removed" && part.invert === true) return [{ ...part, known }];
      throw bad(`${path}.behavior`, `${String(part.behavior)} (invert: ${String(part.invert)}) is not supported`);
    }
    default:
      throw bad(`${path}.type`, `${JSON.stringify(part.type)} is not known`);
  }
}

/** The tokens that a post-processor puts before and after a text; null where it is of a kind not known here. */
export function surroundings(part: Part | null): { before: string[]; after: string[] } | null {
  const [before, after]: [string[], string[]] = [[], []];
  const steps = part ? parts(part, "post_processor", "processors") : [];
  for (const { type, cls, sep, single } of steps) {
    if (type === "ByteLevel") continue;
    if (type === "BertProcessing" || type === "RobertaProcessing") {
      const [first, last] = [cls, sep].map((pair) => String((pair as readonly unknown[] | undefined)?.[0]));
      before.unshift(first!);
      after.push(last!);
      continue;
    }
    if (type !== "TemplateProcessing" || !Array.isArray(single)) return null;
    const items = single as ({ SpecialToken?: { id: string }; Sequence?: unknown } | null)[];
    const text = items.findIndex((item) => item?.Sequence !== undefined);
    if (text < 0) return null;
    const names = items.map((item) => item?.SpecialToken?.id ?? "");
    before.unshift(...names.slice(0, text));
    after.push(...names.slice(text + 1));
  }
  return { before, after };
}

/** What the library trusts and would fail on later, or not at all. */
function checkModel(model: Part): void {
  if (model?.type === "Unigram") {
    checkUnigram(model);
    return;
  }
  if (model?.type !== "BPE")
    throw bad("model.type", `${JSON.stringify(model?.type)} is not supported; BPE and Unigram are`);
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    if (model[key]) throw bad(`model.${key}`, `${JSON.stringify(model[key])} is not supported`);
  }
  const { vocab, merges } = model as Bpe;
  if (typeof vocab !== "object" || vocab === null) throw bad("model.vocab", "expected an object");
  for (const token in vocab) {
    const id = vocab[token] as number;
    if (!Number.isInteger(id) || id < 0 || id >= MAX_VOCAB)
      throw bad("model.vocab", `${JSON.stringify(token)} has id ${id}`);
    if (token.length > MAX_TOKEN)
      throw bad("model.vocab", `token ${id} is ${token.length} long, more than ${MAX_TOKEN}`);
  }
  if (list(merges, "model.merges").length > MAX_MERGES) throw bad("model.merges", `more than ${MAX_MERGES} merges`);
  const paired = Array.isArray(merges[0]);
  for (const merge of merges as readonly unknown[]) {
    const space = typeof merge === "string" ? merge.indexOf(" ") : 0;
    const fits = paired
      ? Array.isArray(merge) && merge.length === 2 && merge.every((token) => typeof token === "string")
      : space > 0 && space === (merge as string).lastIndexOf(" ");
    if (!fits) throw bad("model.merges", `${JSON.stringify(merge)} is no pair of tokens`);
  }
}

function checkUnigram({ vocab, unk_id: unknown }: Part): void {
  const tokens = list(vocab, "model.vocab");
  let units = 0;
  for (const one of tokens) {
    const [token, score] = Array.isArray(one) ? one : [];
    if (typeof token !== "string" || token.length > MAX_TOKEN || !Number.isFinite(score))
      throw bad("model.vocab", `${JSON.stringify(one)} is no token of at most ${MAX_TOKEN} with a score`);
    units += token.length;
  }
  if (tokens.length > MAX_VOCAB || units > MAX_UNIGRAM_TEXT)
    throw bad("model.vocab", `${tokens.length} tokens, more than ${MAX_VOCAB} or ${MAX_UNIGRAM_TEXT} characters`);
  if (unknown != null && !tokens[unknown as number]) throw bad("model.unk_id", `no token is ${unknown}`);
}

function checkAdded(added: unknown): void {
  let length = 0;
  for (const token of list(added, "added_tokens") as ({ id?: unknown; content?: unknown } | null)[]) {
    const { id, content } = token ?? {};
    const fine = Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_VOCAB;
    if (!fine || typeof content !== "string" || content === "" || content.length > MAX_ADDED) {
      throw bad("added_tokens", `${JSON.stringify({ id, content })} is not an id with a text of 1 to ${MAX_ADDED}`);
    }
    length += content.length;
  }
  if (length > MAX_ADDED_TEXT) throw bad("added_tokens", `${length} characters, more than ${MAX_ADDED_TEXT}`);
}

/** Runs on what strangers wrote: whatever goes wrong is their file's fault. */
export function attempt<T>(key: string, run: () => T): T {
  try {
    return run();
  } catch (cause) {
    throw cause instanceof EngineError ? cause : bad(key, (cause as Error).message, cause);
  }
}

export function list(value: unknown, path: string): readonly unknown[] {
  if (!Array.isArray(value)) throw bad(path, "expected a list");
  return value;
}

export function bad(key: string, message: string, cause?: unknown): EngineError {
  const where = key === "" ? "tokenizer.json" : `tokenizer.json ${key}`;
  return new EngineError("BadTokenizer", `${where}: ${brief(message)}`, { key }, { cause });
}
