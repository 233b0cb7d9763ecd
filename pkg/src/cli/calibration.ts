/** What the commands share that choose by texts: their data, and what an interrupted run has left. */

import { createHash } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { memoText, readMemo } from "../quality/memo.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";

/** Options of a load that change no number. */
const SAME_BITS = ["threads", "flavour", "cache", "verify", "connections", "prefault", "weightPrefetch"];

/** What a run has measured, kept beside its output until it is done. */
export class Memo {
  readonly numbers: Map<string, number>;
  readonly #file: string;
  readonly #about: string;
  #saved: number;
  #writing: Promise<unknown> | null = null;

  private constructor(file: string, about: string, numbers: Map<string, number>) {
    this.#file = file;
    this.#about = about;
    this.numbers = numbers;
    this.#saved = numbers.size;
  }

  /**
   * Works with what an interrupted run has left, which goes when the work is done.
   *
   * @param facts what the numbers depend on: the model as it is now, the options of its loads, texts
   */
  static async during<T>(
    file: string,
    { load, ...facts }: { model: unknown; load: LoadOptions; [fact: string]: unknown },
    work: (memo: Memo) => Promise<T>,
  ): Promise<T> {
    const options = Object.entries(load).filter(([name]) => !SAME_BITS.includes(name));
    const about = createHash("sha256")
      .update(JSON.stringify([options.sort(), facts]))
      .digest("hex");
    const memo = new Memo(file, about, readMemo(await readFile(file, "utf8").catch(() => ""), about));
    try {
      const done = await work(memo);
      await memo.#written();
      await rm(file, { force: true });
      return done;
    } catch (error) {
      memo.save();
      await memo.#written();
      throw error;
    }
  }

  async #written(): Promise<void> {
    while (this.#writing) await this.#writing;
  }

  /** Writes what came since the last time, whole or not at all; one write at a time. */
  save(): void {
    if (this.#writing || this.numbers.size === this.#saved) return;
    this.#saved = this.numbers.size;
    const part = `${this.#file}.${process.pid}`;
    this.#writing = writeFile(part, memoText(this.numbers, this.#about))
      .then(() => rename(part, this.#file))
      .catch(() => rm(part, { force: true }))
      .catch(() => {})
      .finally(() => {
        this.#writing = null;
        this.save();
      });
  }
}

/** Lines of JSON for a file of that name; any other file is one text. */
export function textsOf(data: string, file: string): string[] {
  if (data.trim() === "") throw new EngineError("BadValue", `${file} holds no text`, { file });
  if (!/\.(jsonl|ndjson)$/i.test(file)) return [data];
  const lines = data.split(/\r?\n/);
  return lines.flatMap((line, at) => {
    if (line.trim() === "") return [];
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (cause) {
      const reason = `${file}, line ${at + 1} is not JSON: ${(cause as Error).message}`;
      throw new EngineError("BadValue", reason, { file }, { cause });
    }
    const text = typeof value === "string" ? value : (value as { text?: unknown } | null)?.text;
    if (typeof text === "string" && text !== "") return [text];
    const expected = "a JSON text or an object with a text";
    throw new EngineError("BadValue", `${file}, line ${at + 1}: expected ${expected}`, { file, expected });
  });
}
