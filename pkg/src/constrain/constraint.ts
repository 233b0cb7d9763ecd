/** Answers that keep to a format: what may not come next is forbidden before every choice. The library is a wasm of its own. */

import { createGlue } from "../../dist/glue/constrain.js";
import type { FormatSpec } from "../options/response_format.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { EngineError } from "../types/errors.ts";

type Glue = ReturnType<typeof createGlue>;
type Vocabulary = Glue["Vocabulary"]["prototype"];

/** What a model's constraints share. Nothing is fetched or built before one is asked for. */
export class Constrainer {
  readonly #tokenizer: Tokenizer;
  readonly #vocab: number;
  readonly #ends: readonly number[];
  readonly #compiled: () => Promise<WebAssembly.Module>;
  #module: Promise<WebAssembly.Module> | null = null;
  #vocabulary: Promise<Vocabulary> | null = null;

  /**
   * @param vocab logits of the model
   * @param ends ids that end its answers
   * @param compiled the library's module, asked for once
   */
  constructor(
    tokenizer: Tokenizer,
    vocab: number,
    ends: readonly number[],
    compiled: () => Promise<WebAssembly.Module>,
  ) {
    this.#tokenizer = tokenizer;
    this.#vocab = vocab;
    this.#ends = ends;
    this.#compiled = compiled;
  }

  /** @param mayEnd whether the model may end a text that is whole but could go on */
  async start(format: FormatSpec, mayEnd: boolean): Promise<Constraint> {
    this.#vocabulary ??= this.#build().catch((error) => {
      this.#vocabulary = null;
      throw error;
    });
    const vocabulary = await this.#vocabulary;
    // An instance that has trapped is not to be trusted any more; the next constraint gets another.
    const onTrap = () => (this.#vocabulary = null);
    const wasm = attempt(format, onTrap, () => vocabulary.constraint(format.kind, format.source));
    return new Constraint(wasm, format, mayEnd ? [] : this.#ends, onTrap);
  }

  async #build(): Promise<Vocabulary> {
    this.#module ??= this.#compiled().catch((error) => {
      this.#module = null;
      throw error;
    });
    const glue = createGlue();
    glue.initSync({ module: await this.#module });
    return makeVocabulary(glue, this.#tokenizer, this.#vocab, this.#ends);
  }
}

/** Every token's bytes. What ends an answer is no text, whatever its bytes. */
export function makeVocabulary(
  glue: Glue,
  tokenizer: Tokenizer,
  vocab: number,
  ends: readonly number[],
): InstanceType<Glue["Vocabulary"]> {
  const tokens = Array.from({ length: vocab }, (_, id) => tokenizer.bytes(id, true));
  const special = tokens.flatMap((bytes, id) =>
    ends.includes(id) || (bytes.length > 0 && tokenizer.bytes(id, false).length === 0) ? id : [],
  );
  const bytes = new Uint8Array(tokens.reduce((sum, token) => sum + token.length, 0));
  let at = 0;
  for (const token of tokens) {
    bytes.set(token, at);
    at += token.length;
  }
  const lengths = Uint32Array.from(tokens, (token) => token.length);
  return new glue.Vocabulary(bytes, lengths, Uint32Array.from(special), Uint32Array.from(ends));
}

/** One answer under way. */
export class Constraint {
  readonly #wasm: Glue["Constraint"]["prototype"];
  readonly #format: FormatSpec;
  readonly #never: readonly number[];
  readonly #onTrap: () => void;
  #failure: unknown = null;

  constructor(wasm: Glue["Constraint"]["prototype"], format: FormatSpec, never: readonly number[], onTrap: () => void) {
    this.#wasm = wasm;
    this.#format = format;
    this.#never = never;
    this.#onTrap = onTrap;
  }

  /** Forbids what may not come next; false where nothing may, and the text is whole. */
  mask(logits: Float32Array): boolean {
    if (this.#failure) throw this.#failure;
    const bits = attempt(this.#format, this.#onTrap, () => this.#wasm.mask());
    for (const id of this.#never) bits[id >>> 5]! &= ~(1 << (id & 31));
    let any = 0;
    for (let id = 0; id < logits.length; id++) {
      const allowed = ((bits[id >>> 5] ?? 0) >>> (id & 31)) & 1;
      if (!allowed) logits[id] = -Infinity;
      any |= allowed;
    }
    return any === 1;
  }

  /** Goes on by a token; whether the text is whole and nothing may follow. What fails here is told by the next `mask`. */
  accept(token: number): boolean {
    try {
      attempt(this.#format, this.#onTrap, () => this.#wasm.accept(token));
      return this.#wasm.done();
    } catch (error) {
      this.#failure = error;
      return false;
    }
  }

  free(): void {
    this.#wasm.free();
  }
}

/** The library throws strings: a place, a line feed, a reason. Anything else is a trap. */
function attempt<T>(format: FormatSpec, onTrap: () => void, work: () => T): T {
  const { option } = format;
  try {
    return work();
  } catch (cause) {
    if (typeof cause !== "string") {
      onTrap();
      const reason = "it takes more than the library can do";
      throw new EngineError("BadConstraint", `${option}: ${reason}`, { option, reason }, { cause });
    }
    const split = cause.indexOf("\n");
    const [place, reason] = [cause.slice(0, Math.max(split, 0)), cause.slice(split + 1)];
    const where = place === "" ? option : `${option}, ${place}`;
    throw new EngineError("BadConstraint", `${where}: ${reason}`, { option, reason, ...(place ? { place } : {}) });
  }
}
