/** The texts of a model's tokens, for log-probabilities and tool calls. Each token is asked for once. */

import type { Model, TokenBytes, TokenLogprobs } from "../types/index.ts";

export interface TokenText {
  text: string;
  bytes: number[];
  special: boolean;
}

export class TokenTexts {
  readonly #model: Model;
  readonly #known = new Map<number, TokenText>();

  constructor(model: Model) {
    this.#model = model;
  }

  /** Makes the texts of these tokens known. */
  async learn(ids: readonly number[]): Promise<void> {
    const unknown = [...new Set(ids.filter((id) => !this.#known.has(id)))];
    if (unknown.length === 0) return;
    const found = await this.#model.tokenBytes(unknown);
    for (const [i, id] of unknown.entries()) this.#known.set(id, toText(found[i]!));
  }

  learnLogprobs(logprobs: readonly TokenLogprobs[]): Promise<void> {
    return this.learn(logprobs.flatMap(({ token, top }) => [token, ...top.map((one) => one.token)]));
  }

  of(id: number): TokenText {
    return this.#known.get(id)!;
  }
}

/** A token that is no whole characters is told by its bytes, as OpenAI does. */
function toText({ bytes, special }: TokenBytes): TokenText {
  const list = [...bytes];
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), bytes: list, special };
  } catch {
    const digits = list.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
    return { text: `bytes:${digits.join("")}`, bytes: list, special };
  }
}
