/** How far a batch is, for people. */

import type { Input } from "../batch/input.ts";
import type { Output, Places } from "../batch/output.ts";
import type { Read } from "../batch/run.ts";
import type { Collected } from "./batch_library.ts";
import { plural } from "./format.ts";
import type { Terminal } from "./terminal.ts";

/** Milliseconds between two lines that replace each other, and between two that stay where nothing can be replaced. */
const [PASSING_MS, STAYING_MS] = [250, 10_000];
/** The same of a job on a queue, which may take days. */
const JOB_STAYING_MS = 30_000;
/** Milliseconds from which the rate of a queue is taken: chunks that were done before come all at once. */
const RATE_MS = 300_000;

const rated = (lines: number, seconds: number) => `${(lines / Math.max(seconds, 1e-3)).toPrecision(3)} lines/s`;

export class BatchProgress {
  readonly #terminal: Terminal;
  readonly #input: Input;
  readonly #output: Output;
  readonly #begun = performance.now();
  /** Lines that were done before. */
  readonly #before: number;
  #shown = performance.now();

  constructor(terminal: Terminal, input: Input, output: Output) {
    this.#terminal = terminal;
    this.#input = input;
    this.#output = output;
    this.#before = output.done;
  }

  show(read: Read): void {
    const now = performance.now();
    const stays = process.stderr.isTTY !== true;
    if (now - this.#shown < (stays ? STAYING_MS : PASSING_MS)) return;
    this.#shown = now;
    const left = this.#secondsLeft(read);
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

  #facts(): string[] {
    const { done, failed } = this.#output;
    const errors = failed > 0 ? [plural(failed, "error")] : [];
    return [plural(done, "line"), rated(done - this.#before, this.#seconds), ...errors];
  }

  #secondsLeft(read: Read): number | null {
    const total = this.#total(read);
    const { done } = this.#output;
    if (total === null || done <= this.#before) return null;
    return (this.#seconds * Math.max(0, total - done)) / (done - this.#before);
  }

  /** Lines of the whole input, by those that were read and the share of its bytes that they were. */
  #total({ lines, whole }: Read): number | null {
    const { read, size } = this.#input;
    if (whole) return lines;
    return size === null || read === 0 ? null : (lines * size) / read;
  }
}

/** How much of a job on a queue is collected. Workers may be busy with later lines while that stands. */
export class QueueProgress {
  readonly #terminal: Terminal;
  readonly #stays = process.stderr.isTTY !== true;
  readonly #timer: NodeJS.Timeout;
  #now: Collected;
  /** Lines that were collected at times of late, the first one first. */
  #before: { at: number; lines: number }[] = [];

  constructor(terminal: Terminal, total: number) {
    this.#terminal = terminal;
    this.#now = { lines: 0, failed: 0, total };
    this.#before.push({ at: performance.now(), lines: 0 });
    this.#timer = setInterval(() => this.#tell(), this.#stays ? JOB_STAYING_MS : PASSING_MS);
    this.#timer.unref();
  }

  show(now: Collected): void {
    this.#now = now;
  }

  end(): void {
    clearInterval(this.#timer);
    this.#terminal.passing("");
  }

  #tell(): void {
    const { lines, failed, total } = this.#now;
    const at = performance.now();
    while (this.#before.length > 1 && at - this.#before[0]!.at > RATE_MS) this.#before.shift();
    const first = this.#before[0]!;
    this.#before.push({ at, lines });
    const [more, seconds] = [lines - first.lines, (at - first.at) / 1000];
    const facts = [`${lines} of ${plural(total, "line")}`, rated(more, seconds)];
    if (failed > 0) facts.push(plural(failed, "error"));
    if (more > 0) facts.push(`${span((seconds * (total - lines)) / more)} left`);
    if (this.#stays) void this.#terminal.note(facts.join(" · "));
    else this.#terminal.passing(facts.join(" · "));
  }
}

/** `40 s`, `3 min 20 s`, `5 h 12 min` */
function span(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
