/** The library for response formats: compiles them, and says which tokens may come next. It runs in a worker of its own, if there are any. */

import { createGlue } from "../../dist/glue/constrain.js";
import type { FormatSpec } from "../options/response_format.ts";
import type { Port } from "../rpc/port.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Opening, VocabularyData } from "./opening.ts";

type Glue = ReturnType<typeof createGlue>;
type Vocabulary = Glue["Vocabulary"]["prototype"];
type Matcher = Glue["Constraint"]["prototype"];

/** Begins a constraint and goes on by tokens, goes on by one more, or forgets it. All but the last are answered by a `State`. */
export type Request =
  | { id: number; format: Pick<FormatSpec, "kind" | "source">; tokens: number[] }
  | { id: number; token: number }
  | { id: number; free: true };

export type State =
  /** One bit for each token that may come next; none where nothing may. `done` where the text is whole and nothing may follow. */
  | { id: number; bits: Uint32Array; done: boolean }
  /** A place, a line feed and a reason. */
  | { id: number; refusal: string }
  /** The instance has trapped: it cannot be used any more, and none of its objects may be freed. */
  | { id: number; trap: string };

/** Every token's bytes. What ends an answer is no text, whatever its bytes. */
export function vocabularyOf(tokenizer: Tokenizer, vocab: number, ends: readonly number[]): VocabularyData {
  const tokens = Array.from({ length: vocab }, (_, id) => tokenizer.bytes(id, true));
  const final = new Set(ends);
  const special = tokens.flatMap((bytes, id) =>
    final.has(id) || (bytes.length > 0 && tokenizer.bytes(id, false).length === 0) ? id : [],
  );
  const bytes = new Uint8Array(tokens.reduce((sum, token) => sum + token.length, 0));
  let at = 0;
  for (const token of tokens) {
    bytes.set(token, at);
    at += token.length;
  }
  const lengths = Uint32Array.from(tokens, (token) => token.length);
  return { bytes, lengths, special: Uint32Array.from(special), ends: Uint32Array.from(ends) };
}

export class Compiler {
  readonly #vocabulary: Vocabulary;
  readonly #matchers = new Map<number, Matcher>();

  constructor({ constrain, vocabulary }: Opening) {
    const glue = createGlue();
    glue.initSync({ module: constrain });
    const { bytes, lengths, special, ends } = vocabulary;
    this.#vocabulary = new glue.Vocabulary(bytes, lengths, special, ends);
  }

  run(request: Request): State | null {
    const { id } = request;
    try {
      if ("free" in request) {
        this.#matchers.get(id)?.free();
        this.#matchers.delete(id);
        return null;
      }
      if ("format" in request) {
        const { kind, source } = request.format;
        this.#matchers.set(id, this.#vocabulary.constraint(kind, source));
      }
      const matcher = this.#matchers.get(id);
      if (!matcher) return null;
      for (const token of "format" in request ? request.tokens : [request.token]) matcher.accept(token);
      const done = matcher.done();
      return { id, bits: done ? new Uint32Array() : matcher.mask(), done };
    } catch (cause) {
      if (typeof cause === "string") return { id, refusal: cause };
      this.#abandon();
      return { id, trap: cause instanceof Error ? cause.message : String(cause) };
    }
  }

  /** Leaves the instance to the garbage collector. Its objects would trap again, in their finalisers, where nobody catches it. */
  #abandon(): void {
    for (const object of [this.#vocabulary, ...this.#matchers.values()]) {
      (object as unknown as { __destroy_into_raw(): number }).__destroy_into_raw();
    }
    this.#matchers.clear();
  }
}

/** What a worker posts when it has read the vocabulary. */
export const READY = "ready to compile";

/** The worker's side. */
export function compileFor(opening: Opening, port: Port): void {
  const compiler = new Compiler(opening);
  port.post(READY);
  port.onmessage = (message) => {
    const state = compiler.run(message as Request);
    if (state) port.post(state, "bits" in state ? [state.bits.buffer as ArrayBuffer] : []);
  };
}
