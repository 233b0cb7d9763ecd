/** `run --prompts`: a file of prompts in, a file of answers out, in order, a few at a time, and on from where it was cut off. */

import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { linesOf } from "../batch/lines.ts";
import { MAX_LINE } from "../batch/rows.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage, ChatOptions, Finished, Model } from "../types/index.ts";
import { forJson } from "./escape.ts";
import { unwritable, utf8 } from "./file.ts";
import { plural } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

export interface PromptFiles {
  prompts: string;
  /** Standard output where it is undefined. */
  out: string | undefined;
  /** For every line; a line's own come before them. */
  options: ChatOptions;
}

/** Requests beside those that are computed, so that a place never waits for a line. */
const AHEAD = 2;

/** What a line asks. */
interface Line {
  id?: string | number;
  prompt?: string;
  ids?: number[];
  messages?: ChatMessage[];
  [option: string]: unknown;
}

/** What becomes of a line. */
type Outcome = Record<string, unknown> & { index: number };

export async function answerPrompts(model: Model, files: PromptFiles, terminal: Terminal): Promise<void> {
  const { signal } = terminal;
  const out = await Answers.open(files.out, terminal);
  const begun = performance.now();
  let [index, failed, tokens] = [0, 0, 0];
  const pending: Promise<Outcome>[] = [];
  const settle = async () => {
    const outcome = await pending.shift()!;
    if (outcome.error) failed++;
    else tokens += (outcome.tokens as number[]).length;
    await out.write(outcome);
  };
  const most = model.info.maxSequences + AHEAD;
  try {
    for await (const line of linesIn(files.prompts)) {
      if (typeof line === "string" && line.trim() === "") continue;
      const at = index++;
      if (at < out.before) continue;
      signal.throwIfAborted();
      pending.push(answerLine(model, line, at, files.options, signal));
      // Whoever waits for the first hears of the others' failures later.
      pending.at(-1)!.catch(() => {});
      if (pending.length >= most) await settle();
      terminal.passing(`answered ${at + 1 - pending.length}`);
    }
    while (pending.length > 0) await settle();
  } finally {
    await out.close();
  }
  const seconds = (performance.now() - begun) / 1000;
  const skipped = out.before > 0 ? `, ${out.before} were there` : "";
  const rate = tokens > 0 ? ` at ${(tokens / seconds).toFixed(1)} tokens/s` : "";
  await terminal.note(`${plural(index - Math.min(index, out.before), "answer")}${rate}, ${failed} failed${skipped}`);
  if (failed > 0) terminal.status = 1;
}

/** What is wrong with a line stands in its place. */
async function* linesIn(file: string): AsyncGenerator<string | EngineError, undefined> {
  try {
    for await (const lines of linesOf(createReadStream(file), { most: MAX_LINE })) {
      for (const line of lines) yield decoded(line);
    }
  } catch (cause) {
    throw unreadable(file, cause as Error);
  }
}

/** @param line null for one that is too long */
function decoded(line: Uint8Array | null): string | EngineError {
  const option = "--prompts";
  if (line === null) return new EngineError("TooLarge", `a line has at most ${MAX_LINE} bytes`, { option });
  try {
    return utf8(line, "the line");
  } catch (error) {
    return error as EngineError;
  }
}

export const unreadable = (file: string, cause: Error): EngineError =>
  new EngineError("NotFound", `--prompts: ${cause.message}`, { option: "--prompts", file }, { cause });

async function answerLine(
  model: Model,
  line: string | EngineError,
  index: number,
  common: ChatOptions,
  signal: AbortSignal,
): Promise<Outcome> {
  let id: Line["id"];
  try {
    if (line instanceof EngineError) throw line;
    const { id: own, prompt, ids, messages, ...options } = parsed(line);
    id = own;
    // Each line has a seed of its own that follows from that of all.
    const seed = common.seed === undefined ? {} : { seed: common.seed + index };
    const all = { ...common, ...seed, ...options, signal };
    const generation = messages ? model.chat(messages, all) : model.generate((prompt ?? ids)!, all);
    return { index, ...(id === undefined ? {} : { id }), ...shown(await generation.finished) };
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof EngineError) || error.code === "Closed" || error.code === "WorkerFailed") throw error;
    const { code, message } = error;
    return { index, ...(id === undefined ? {} : { id }), error: { code, message } };
  }
}

/** Without times, so that the same prompts give the same bytes. */
function shown({ choices, timings: _, promptTokens: __, ...answer }: Finished) {
  return { ...answer, ...(choices ? { choices: choices.map(({ text }) => text) } : {}) };
}

function parsed(text: string): Line {
  const expected = "a text, or an object with one of prompt, ids and messages";
  const wrong = () =>
    new EngineError("InvalidArgument", `a line must be ${expected}`, { option: "--prompts", expected });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw wrong();
  }
  if (typeof value === "string") return { prompt: value };
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrong();
  const line = value as Line;
  const given = [line.prompt, line.ids, line.messages].filter((one) => one !== undefined);
  if (given.length !== 1) throw wrong();
  return line;
}

/** The lines that are written. Those of an earlier run stay; one that was cut off is written anew. */
class Answers {
  /** Whole lines that were there. */
  readonly before: number;
  readonly #name: string;
  readonly #file: FileHandle | null;
  readonly #terminal: Terminal;

  private constructor(name: string, file: FileHandle | null, before: number, terminal: Terminal) {
    this.#name = name;
    this.#file = file;
    this.before = before;
    this.#terminal = terminal;
  }

  static async open(name: string | undefined, terminal: Terminal): Promise<Answers> {
    if (name === undefined) return new Answers("", null, 0, terminal);
    try {
      const file = await open(name, "a+");
      // A pipe or a device has no earlier run's lines.
      if (!(await file.stat()).isFile()) return new Answers(name, file, 0, terminal);
      const { lines, bytes } = await wholeLines(file, name).catch(async (error) => {
        await file.close();
        throw error;
      });
      await file.truncate(bytes);
      return new Answers(name, file, lines, terminal);
    } catch (cause) {
      throw cause instanceof EngineError ? cause : unwritable("--out", name, cause);
    }
  }

  async write(outcome: Outcome): Promise<void> {
    const line = `${forJson(JSON.stringify(outcome))}\n`;
    if (!this.#file) return this.#terminal.print(line);
    await this.#file.appendFile(line).catch((cause) => {
      throw unwritable("--out", this.#name, cause);
    });
  }

  async close(): Promise<void> {
    await this.#file?.close();
  }
}

const LINE_FEED = 10;
const CHUNK = 1 << 16;

/** The answers of an earlier run, and their bytes. A file that holds anything else is somebody's, and stays as it is. */
async function wholeLines(file: FileHandle, name: string): Promise<{ lines: number; bytes: number }> {
  const buffer = Buffer.alloc(CHUNK);
  let [lines, bytes, begun] = [0, 0, ""];
  const begins = () => `{"index":${lines},`;
  const check = (fits: boolean) => {
    if (fits) return;
    const expected = `line ${lines + 1} to begin with ${begins()}`;
    const message = `--out: ${name} holds something else than answers of an earlier run: expected ${expected}`;
    throw new EngineError("Exists", message, { option: "--out", file: name, expected, found: begun });
  };
  for (let at = 0; ; ) {
    const { bytesRead } = await file.read(buffer, 0, CHUNK, at);
    if (bytesRead === 0) break;
    for (let i = 0; i < bytesRead; i++) {
      if (buffer[i] !== LINE_FEED) {
        if (begun.length < begins().length) begun += String.fromCharCode(buffer[i]!);
        continue;
      }
      check(begun === begins());
      lines++;
      bytes = at + i + 1;
      begun = "";
    }
    at += bytesRead;
  }
  check(begins().startsWith(begun));
  return { lines, bytes };
}

/** Refuses what does not go with a file of prompts. */
export function checkPrompts(
  given: Readonly<Record<string, boolean>>,
  out: string | undefined,
  prompts?: string,
): void {
  if (prompts === undefined) {
    if (out !== undefined) throw new UsageError("--out belongs to --prompts", { option: "--out" });
    return;
  }
  const other = Object.keys(given).find((name) => given[name]);
  if (other) throw new UsageError(`${other} does not go with --prompts`, { option: other });
}
