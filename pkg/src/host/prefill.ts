/** The load option `prefill`: a prompt that is computed while the weights come. */

import type { PromptSpec } from "../rpc/protocol.ts";
import { EngineError, type ErrorCode, type ErrorDetail } from "../types/errors.ts";
import type { Prefill } from "../types/index.ts";
import { savedIds } from "./bounds.ts";
import { encodePrompt } from "./prompt.ts";
import type { Text } from "./text.ts";

/** Bytes a millisecond from which on packing them is what a single thread should do. */
const FAST = 100_000;

/** The ids of the prompt, as those of the generation that will ask for it. */
export function prefillIds(prefill: Prefill, text: Text, contextLength: number): number[] {
  return encodePrompt(text, contextLength, specOf(prefill), true, { sanitize: false, shift: false });
}

/** How many tokens it may have at most. */
export const mostTokens = (prefill: Prefill): number => {
  const spec = specOf(prefill);
  return "ids" in spec ? spec.ids.length : 2 ** 31;
};

function specOf(prefill: Prefill): PromptSpec {
  if (typeof prefill === "string") return { text: prefill, addSpecial: true };
  if (prefill instanceof Uint8Array) return { ids: savedIds(prefill) };
  if ("messages" in prefill) {
    const { messages, tools, templateOptions } = prefill;
    return {
      messages: [...messages],
      ...(tools && { tools: [...tools] }),
      ...(templateOptions && { templateOptions }),
    };
  }
  const list = [...(prefill as readonly number[])];
  return typeof list[0] === "number" ? { ids: list } : { messages: list as never };
}

export interface PromptWork {
  /** Takes the bytes, and computes the prompt with what has come. */
  loader: { prefill(ids: Uint32Array): void; advance(): boolean };
  /** Known when the tokenizer is there. */
  ids: Promise<readonly number[]>;
  threads: number;
  turn(): Promise<void>;
}

/** Computes a prompt beside a stream of bytes. */
export class Prefilling {
  readonly #work: PromptWork;
  readonly #control = new AbortController();
  readonly #abort: () => void;
  readonly #outer: AbortSignal;
  readonly #begun = performance.now();
  /** Milliseconds that went into the prompt. */
  #spent = 0;
  #bytes = 0;
  #over = false;
  #wake = () => {};

  constructor(work: PromptWork, outer: AbortSignal) {
    this.#work = work;
    this.#outer = outer;
    this.#abort = () => this.#control.abort(outer.reason);
    outer.addEventListener("abort", this.#abort);
    this.#run().catch((error) => this.#control.abort(typed(error)));
  }

  /** Ends the stream: with the load, or because there is something wrong with the prompt. */
  get signal(): AbortSignal {
    return this.#control.signal;
  }

  /** So many bytes have come. */
  came(bytes: number): void {
    this.#bytes += bytes;
    this.#wake();
  }

  end(): void {
    this.#over = true;
    this.#wake();
    this.#outer.removeEventListener("abort", this.#abort);
  }

  async #run(): Promise<void> {
    const { loader, ids, threads, turn } = this.#work;
    const list = Uint32Array.from(await ids);
    if (this.#over) return;
    loader.prefill(list);
    // Threads compute it beside this one.
    while (threads === 1 && !this.#over) {
      const before = this.#bytes;
      await turn();
      if (this.#over) return;
      const now = performance.now();
      // What comes is packed first. Where bytes come faster than they are packed, the prompt waits for the end.
      if (this.#bytes > before || this.#bytes > FAST * (now - this.#begun - this.#spent)) continue;
      const more = loader.advance();
      this.#spent += performance.now() - now;
      if (!more) await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

/** The engine throws data, which would be taken for an error of the file that is read. */
function typed(error: unknown): unknown {
  if (error instanceof Error) return error;
  const { code, message, detail } = error as { code: ErrorCode; message: string; detail: ErrorDetail };
  return new EngineError(code, message, detail);
}
