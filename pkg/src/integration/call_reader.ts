/** Separates calls of tools from an answer's text that has its special tokens, and drops those from the text. */

import { type CallEvent, CallStream } from "../text/call_stream.ts";
import type { Finished } from "../types/index.ts";
import type { TokenTexts } from "./tokens.ts";

/** What becomes known of an answer before its end. Calls are numbered from 0. */
export type TextOrCall =
  | { type: "text"; text: string }
  | { type: "call"; call: number; id: string | undefined; name: string }
  | { type: "arguments"; call: number; text: string };

export class CallReader {
  readonly #stream: CallStream;
  readonly #tokens: TokenTexts;
  readonly #special = new Set<string>();

  constructor(tools: readonly unknown[], tokens: TokenTexts) {
    this.#stream = new CallStream(tools);
    this.#tokens = tokens;
  }

  get found(): boolean {
    return this.#stream.calls > 0;
  }

  /** Whether a call has ended and no other one has begun. */
  get between(): boolean {
    return this.#stream.between;
  }

  async read(text: string, ids: readonly number[]): Promise<TextOrCall[]> {
    await this.#tokens.learn(ids);
    for (const id of ids) {
      const { special, text } = this.#tokens.of(id);
      if (special) this.#special.add(text);
    }
    return this.#stream.push(text).map((event) => this.#part(event));
  }

  end(): TextOrCall[] {
    return this.#stream.end().map((event) => this.#part(event));
  }

  #part(event: CallEvent): TextOrCall {
    if (event.type === "call") return { type: "call", call: event.index, id: event.id, name: event.name };
    if (event.type === "arguments") return { type: "arguments", call: event.index, text: event.text };
    let { text } = event;
    for (const one of this.#special) text = text.replaceAll(one, "");
    return { type: "text", text };
  }
}

/** An answer that was left behind its first call, by the tokens that were read: how far the engine was by then depends on its speed. */
export const leftBehindCall = (finished: Finished, read: number): Finished => ({
  ...finished,
  finishReason: "stopped",
  tokens: finished.tokens.slice(0, read),
});
