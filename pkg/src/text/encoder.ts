/** From a text to ids, by the parts of the library: added tokens first, the model's own between them. */

import { bad, grows, type Pipeline } from "./library.ts";
import { MAX_ADDED_TEXT } from "./limits.ts";
import type { AddedToken } from "./tokenizer_json.ts";
import { type Match, Trie } from "./trie.ts";

interface Section {
  text: string;
  /** Where it begins in the text that it was cut from. */
  start: number;
  token: AddedToken | null;
}

/**
 * What only marks of control are spelled like. Files are often wrong about which of their added tokens are special: of these it does
 * not matter. llama.cpp decides by the same when it writes a GGUF, so both forms of a model are read alike.
 */
const CONTROL = /^(?:<\|.*\|>|<\uff5c.*\uff5c>)$/su;

export class Encoder {
  /** Texts of the tokens that no text of a message may become: the special ones, and those that are spelled like marks of control. */
  readonly special: readonly string[];
  readonly #pipeline: Pipeline;
  /** By their texts, also in the normalized form. */
  readonly #added = new Map<string, AddedToken>();
  readonly #contents: ReadonlyMap<string, number>;
  readonly #specialIds: ReadonlySet<number>;
  readonly #special: Trie;
  readonly #plain: Trie;
  readonly #normalized: Trie;

  constructor(pipeline: Pipeline, added: readonly AddedToken[]) {
    this.#pipeline = pipeline;
    const { normalizer } = pipeline;
    const [plain, normalized]: [string[], string[]] = [[], []];
    let units = 0;
    for (const token of added) {
      this.#added.set(token.content, token);
      if (normalizer && (token.normalized ?? !token.special)) {
        const content = normalizer(token.content);
        units += content.length;
        if (units > MAX_ADDED_TEXT) throw grows("added_tokens");
        normalized.push(content);
        this.#added.set(content, token);
      } else plain.push(token.content);
    }
    const special = added.filter((token) => token.special || CONTROL.test(token.content));
    this.special = special.map((token) => token.content);
    this.#special = new Trie(this.special);
    this.#specialIds = new Set(special.map((token) => token.id));
    this.#contents = new Map(added.map((token) => [token.content, token.id]));
    this.#plain = new Trie(plain);
    this.#normalized = new Trie(normalized.filter((content) => content !== ""));
  }

  /**
   * @param seams places that no special token is read across, in rising order, where the text holds messages; null where all of its
   * special tokens count
   */
  encode(text: string, seams: readonly number[] | null): number[] {
    const crossed = ({ start, end }: Match) => seams !== null && crosses(seams, text, start, end);
    const ids: number[] = [];
    this.#pipeline.model.begin?.(text.length);
    for (const [index, section] of this.#sections(text, this.#plain, crossed).entries()) {
      const { text: words, start, token } = section;
      const inside = (match: Match) => crossed({ start: start + match.start, end: start + match.end });
      if (words === "") continue;
      if (token) ids.push(token.id);
      else for (const id of this.#words(words, index, seams && inside)) ids.push(id);
    }
    return ids;
  }

  /** A text between added tokens. Where it holds messages, `crossed` is whether a seam lies inside of a span. */
  *#words(text: string, index: number, crossed: ((match: Match) => boolean) | null): Generator<number> {
    const { normalizer, pre_tokenizer, model } = this.#pipeline;
    const normal = normalizer ? normalizer(text) : text;
    if (normal === "") return;
    let written: ReadonlySet<string> | null = null;
    const barred = ({ start, end }: Match) => {
      if (!crossed) return false;
      written ??= this.#written(text, normal, crossed);
      return !written.has(normal.slice(start, end));
    };
    for (const section of this.#sections(normal, this.#normalized, barred)) {
      if (section.text === "") continue;
      if (section.token) {
        yield section.token.id;
        continue;
      }
      const pieces = pre_tokenizer ? pre_tokenizer(section.text, { section_index: index }) : [section.text];
      for (const token of model(pieces)) yield* this.#ids(token, crossed !== null);
    }
  }

  /**
   * Special tokens of a normalized text that the text itself has as often, with no seam inside: normalizing may bring others forth,
   * and nobody knows which of them is which.
   */
  #written(text: string, normal: string, crossed: (match: Match) => boolean): Set<string> {
    const surplus = new Map<string, number>();
    const add = (word: string, by: number) => surplus.set(word, (surplus.get(word) ?? 0) + by);
    for (const { start, end } of this.#special.find(text, (match) => !crossed(match))) add(text.slice(start, end), -1);
    const found = new Map<string, string>();
    for (const { start, end } of this.#normalized.find(normal)) {
      const word = normal.slice(start, end);
      const { content } = this.#added.get(word) as AddedToken;
      found.set(word, content);
      add(content, 1);
    }
    return new Set([...found].filter(([, content]) => (surplus.get(content) as number) <= 0).map(([word]) => word));
  }

  /** The id of a text that is one token. */
  id(text: string): number | undefined {
    return this.#contents.get(text) ?? this.#pipeline.model.tokens_to_ids.get(text);
  }

  /** The id of a token of the model. A special one that only its merges have made is spelled out, so far as the vocabulary can. */
  *#ids(token: string, guarded: boolean): Generator<number> {
    const { model } = this.#pipeline;
    const id = model.tokens_to_ids.get(token) ?? model.unk_token_id;
    if (id === undefined || !(Number.isInteger(id) && id >= 0))
      throw bad("model", "makes a token that the vocabulary lacks");
    if (!guarded || token === model.unk_token || !this.#specialIds.has(id)) yield id;
    else
      for (const char of token) {
        const id = model.tokens_to_ids.get(char);
        if (id !== undefined && !this.#specialIds.has(id)) yield id;
      }
  }

  /** A text cut at its added tokens, which may take white space beside them away. */
  #sections(text: string, words: Trie, barred: (match: Match) => boolean): Section[] {
    const token = (match: Match) => {
      const found = this.#added.get(text.slice(match.start, match.end));
      return found && !(this.#specialIds.has(found.id) && barred(match)) ? found : null;
    };
    const sections: Section[] = [];
    let at = 0;
    const between = (end: number) => {
      // Without a word in it a text may still be an added token as a whole, by its other form.
      if (end > at) sections.push({ text: text.slice(at, end), start: at, token: token({ start: at, end }) });
    };
    for (const match of words.find(text, (match) => token(match) !== null)) {
      between(match.start);
      sections.push({ text: text.slice(match.start, match.end), start: match.start, token: token(match) });
      at = match.end;
    }
    between(text.length);
    for (const [i, { token }] of sections.entries()) {
      const [before, after] = [sections[i - 1], sections[i + 1]];
      if (token?.lstrip && before) before.text = before.text.trimEnd();
      if (token?.rstrip && after) {
        const stripped = after.text.trimStart();
        after.start += after.text.length - stripped.length;
        after.text = stripped;
      }
    }
    return sections;
  }
}

/** Whether a seam lies inside of a span. A token of one character has its seam behind it. */
function crosses(seams: readonly number[], text: string, start: number, end: number): boolean {
  let [low, high] = [0, seams.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (seams[middle]! <= start) low = middle + 1;
    else high = middle;
  }
  const single = end - start === ((text.codePointAt(start) as number) > 0xffff ? 2 : 1);
  return low < seams.length && seams[low]! < end + (single ? 1 : 0);
}
