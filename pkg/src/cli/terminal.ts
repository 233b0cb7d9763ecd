/** Where a command writes: results to stdout, all else to stderr. */

import { EngineError } from "../types/errors.ts";
import type { Progress } from "../types/index.ts";
import { forJson, forTerminal } from "./escape.ts";
import { bytes } from "./format.ts";

/** A stream, as far as it is written to. */
export interface Output {
  write(text: string, done: () => void): unknown;
  isTTY?: boolean;
}

export class Terminal {
  /** One object on stdout, nothing else; `--help` and `--version` are text all the same. */
  readonly json: boolean;
  /** Aborted by the first Ctrl-C, unless something else wants it. */
  readonly signal: AbortSignal;
  /** What a command that has done its work exits with. */
  status = 0;
  readonly #abort = new AbortController();
  readonly #out: Output;
  readonly #err: Output;
  #interrupted = false;
  #printed = false;
  #onInterrupt: (() => void) | null = null;
  /** Whether a line of progress stands there, to be written over. */
  #line = false;

  constructor({ out, err, json }: { out: Output; err: Output; json: boolean }) {
    this.#out = out;
    this.#err = err;
    this.json = json;
    this.signal = this.#abort.signal;
  }

  get interrupted(): boolean {
    return this.#interrupted;
  }

  /** Whether anything stands on stdout. */
  get printed(): boolean {
    return this.#printed;
  }

  /** Ctrl-C. The second one is for who called this to obey. */
  interrupt(): void {
    this.#interrupted = true;
    if (this.#onInterrupt) this.#onInterrupt();
    else this.#abort.abort(new EngineError("Interrupted", "interrupted"));
  }

  /** While `work` runs, Ctrl-C ends it in its own way. */
  async interruptible<T>(work: () => Promise<T>, end: () => void): Promise<T> {
    this.#onInterrupt = end;
    try {
      return await work();
    } finally {
      this.#onInterrupt = null;
    }
  }

  /** Resolves when the text is written, so that a slow reader slows us down and the end loses nothing. */
  print(text: string): Promise<void> {
    this.#clear();
    this.#printed = true;
    return show(this.#out, text);
  }

  printJson(value: unknown): Promise<void> {
    return this.print(`${forJson(JSON.stringify(value))}\n`);
  }

  note(text: string): Promise<void> {
    this.#clear();
    return show(this.#err, `${text}\n`);
  }

  async warn(warnings: readonly string[]): Promise<void> {
    for (const warning of warnings) await this.note(`warning: ${warning}`);
  }

  readonly progress = ({ phase, loaded, total, bytesPerSecond }: Progress): void => {
    if (!this.#err.isTTY) return;
    const rate = bytesPerSecond > 0 ? `  ${bytes(bytesPerSecond)}/s` : "";
    this.passing(phase === "download" ? `loading  ${bytes(loaded)} of ${bytes(total)}${rate}` : "");
  };

  /** A line that stands until something else is written; only where somebody watches. */
  passing(text: string): void {
    if (!this.#err.isTTY) return;
    this.#clear();
    this.#line = text !== "";
    if (this.#line) void show(this.#err, text);
  }

  #clear(): void {
    if (this.#line) void write(this.#err, "\r\x1b[K");
    this.#line = false;
  }
}

/** What may be a model's text. */
const show = (stream: Output, text: string) => write(stream, stream.isTTY ? forTerminal(text) : text);

const write = (stream: Output, text: string) => new Promise<void>((resolve) => stream.write(text, () => resolve()));
