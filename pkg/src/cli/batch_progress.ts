/** How far a batch is, for people. */

import type { Input } from "../batch/input.ts";
import type { Output, Places } from "../batch/output.ts";
import { plural } from "./format.ts";
import type { Terminal } from "./terminal.ts";

/** Milliseconds between two lines that replace each other, and between two that stay where nothing can be replaced. */
const [PASSING_MS, STAYING_MS] = [250, 10_000];

export class BatchProgress {
  readonly #terminal: Terminal;
  readonly #input: Input;
  readonly #output: Output;
  readonly #begun = performance.now();
  /** Lines that were done before, and the share of the input that they were, once it is known. */
  readonly #before: number;
  #skipped: number | null = null;
  #shown = performance.now();

  constructor(terminal: Terminal, input: Input, output: Output) {
    this.#terminal = terminal;
    this.#input = input;
    this.#output = output;
    this.#before = output.done;
  }

  show(): void {
    this.#skipped ??= this.#share;
    const now = performance.now();
    const stays = process.stderr.isTTY !== true;
    if (now - this.#shown < (stays ? STAYING_MS : PASSING_MS)) return;
    this.#shown = now;
    const left = this.#secondsLeft();
    const facts = [...this.#facts(), ...(left === null ? [] : [`${span(left)} left`])];
    if (stays) void this.#terminal.note(facts.join(" · "));
    else this.#terminal.passing(facts.join(" · "));
  }

  async end({ out, errors }: Places): Promise<void> {
    const { done: lines, failed } = this.#output;
    const seconds = this.#seconds;
    if (this.#terminal.json) {
      const named = failed > 0 ? { errors } : {};
      await this.#terminal.printJson({ lines, failed, resumed: this.#before, seconds, out, ...named });
    } else {
      const where = failed > 0 ? `${out}, errors in ${errors}` : out;
      await this.#terminal.note([...this.#facts(), span(seconds), where].join(" · "));
    }
  }

  get #seconds(): number {
    return (performance.now() - this.#begun) / 1000;
  }

  get #share(): number | null {
    const { read, size } = this.#input;
    return size === null || size === 0 ? null : read / size;
  }

  #facts(): string[] {
    const { done, failed } = this.#output;
    const rate = (done - this.#before) / Math.max(this.#seconds, 1e-3);
    const errors = failed > 0 ? [plural(failed, "error")] : [];
    return [plural(done, "line"), `${rate.toPrecision(3)} lines/s`, ...errors];
  }

  /** By the share of the input that has been read since the beginning. */
  #secondsLeft(): number | null {
    const [share, skipped] = [this.#share, this.#skipped];
    if (share === null || skipped === null || share <= skipped) return null;
    return (this.#seconds * (1 - share)) / (share - skipped);
  }
}

/** `40 s`, `3 min 20 s`, `5 h 12 min` */
function span(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
