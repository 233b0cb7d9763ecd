/** The output of a command: results go to stdout, everything else to stderr. */

import { EngineError } from "../types/errors.ts";
import type { Progress } from "../types/index.ts";
import { forJson, forTerminal } from "./escape.ts";
import { bytes } from "./format.ts";

/** The part of a stream that is used to write to it. */
export interface Output {
  write(text: string | Uint8Array, done: (error?: Error | null) => void): unknown;
  isTTY?: boolean;
}

interface Streams {
  out: Output;
  err: Output;
  json: boolean;
  lost?: (error: Error) => void;
}

export class Terminal {
  /** Whether stdout gets one JSON object and nothing else. `--help` and `--version` print text in any case. */
  json: boolean;
  /** Aborted by the first Ctrl-C, unless `interruptible` handles it. */
  readonly signal: AbortSignal;
  /** The exit status of a command that has done its work. */
  status = 0;
  readonly #abort = new AbortController();
  readonly #out: Output;
  readonly #lost: (error: Error) => void;
  readonly #err: Output;
  #interrupted: number | null = null;
  #printed = false;
  #onInterrupt: (() => void) | null = null;
  /** Whether the last line is a line of progress, which the next output replaces. */
  #line = false;

  /** @param streams.lost is told what kept a result from being written; notes may be lost */
  constructor({ out, err, json, lost = () => {} }: Streams) {
    this.#out = out;
    this.#lost = lost;
    this.#err = err;
    this.json = json;
    this.signal = this.#abort.signal;
  }

  /** The exit status of a command that was interrupted; null of any other. */
  get interrupted(): number | null {
    return this.#interrupted;
  }

  /** Whether anything was written to stdout. */
  get printed(): boolean {
    return this.#printed;
  }

  /** Handles the first Ctrl-C, or a signal like it. The caller handles the second one. */
  interrupt(status = 130): void {
    this.#interrupted = status;
    if (this.#onInterrupt) this.#onInterrupt();
    else this.#abort.abort(new EngineError("Interrupted", "interrupted"));
  }

  /** Runs `work`, during which Ctrl-C calls `end` instead of aborting the signal. */
  async interruptible<T>(work: () => Promise<T>, end: () => void): Promise<T> {
    this.#onInterrupt = end;
    try {
      return await work();
    } finally {
      this.#onInterrupt = null;
    }
  }

  /** Resolves when the text is written, so that a slow reader slows the command down and no output is lost at its end. */
  print(text: string): Promise<void> {
    this.#clear();
    this.#printed = true;
    return show(this.#out, text, this.#lost);
  }

  get isTTY(): boolean {
    return this.#out.isTTY === true;
  }

  printBytes(bytes: Uint8Array): Promise<void> {
    this.#printed = true;
    return write(this.#out, bytes, this.#lost);
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

  /** Shows a line until the next output; on a terminal only. */
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

/** Writes text that may come from a model. */
const show = (stream: Output, text: string, lost?: (error: Error) => void) =>
  write(stream, stream.isTTY ? forTerminal(text) : text, lost);

const write = (stream: Output, text: string | Uint8Array, lost?: (error: Error) => void) =>
  new Promise<void>((resolve) =>
    stream.write(text, (error) => {
      if (error) lost?.(error);
      resolve();
    }),
  );
