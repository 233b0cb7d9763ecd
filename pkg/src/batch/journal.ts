/**
 * The journal of a run: what is done of it, a record a line, each with a checksum. A record that a crash has cut off, and what comes
 * behind it, does not count.
 */

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import type { Answered } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";
import { renameSynced, Written } from "./disk.ts";
import { linesOf } from "./lines.ts";

/** Where a journal is written that takes the place of one that has become long. */
export const newOf = (file: string): string => `${file}.new`;

const VERSION = 1;
/** Bytes from which on what the parts hold is left out. */
const ROTATE = 4 * 2 ** 20;

/** How far the parts of the output are whole. */
export interface Mark {
  /** The first line that they do not hold. */
  next: number;
  /** Bytes of the output and of the errors. */
  out: number;
  errors: number;
  failed: number;
  /** Of all lines before. */
  hash: string;
}

export interface Kept {
  /** What the answers depend on beside the input. */
  of: string;
  mark: Mark;
  /** Answers to lines from the mark on. */
  answers: Map<number, Answered>;
  /** The parts hold everything. */
  whole: boolean;
  /** Bytes that count. */
  size: number;
}

type Record =
  | { version: number; of: string }
  | { mark: Mark }
  | { i: number; failed: boolean; text: string }
  | { whole: true };

const start: Mark = { next: 0, out: 0, errors: 0, failed: 0, hash: "" };
const sum = (text: string | Uint8Array) => createHash("sha256").update(text).digest("hex").slice(0, 8);
/** Characters of a checksum, and of the space behind it. */
const SUM = 9;
const toLine = (record: Record): string => {
  const text = JSON.stringify(record);
  return `${sum(text)} ${text}\n`;
};

/** What a journal says; null where there is none, or not even its first record is whole. */
export async function readJournal(file: string): Promise<Kept | null> {
  let kept: Kept | null = null;
  let size = 0;
  try {
    for await (const text of recordsOf(file)) {
      size += SUM + text.length + 1;
      kept = apply(kept, JSON.parse(text.toString()), file);
      if (kept === null) return null;
      kept.size = size;
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return null;
    if (cause instanceof EngineError) throw cause;
    throw new EngineError("Unreadable", `${file}: ${(cause as Error).message}`, { file }, { cause });
  }
  return kept;
}

/** Records up to the first one that is not whole: one without its LF is not. */
async function* recordsOf(file: string): AsyncGenerator<Buffer, undefined> {
  for await (const lines of linesOf(createReadStream(file), { rest: false })) {
    for (const line of lines) {
      const bytes = Buffer.from(line!);
      const text = bytes.subarray(SUM);
      if (bytes.toString("latin1", 0, SUM) !== `${sum(text)} `) return;
      yield text;
    }
  }
}

function apply(kept: Kept | null, record: Record, file: string): Kept | null {
  if ("version" in record) {
    const { version, of } = record;
    if (version === VERSION) return { of, mark: start, answers: new Map(), whole: false, size: 0 };
    const detail = { file, expected: String(VERSION), found: String(version) };
    throw new EngineError("UnsupportedVersion", `${file} is a journal of version ${version}`, detail);
  }
  if (!kept) return null;
  if ("mark" in record) {
    for (const index of kept.answers.keys()) if (index < record.mark.next) kept.answers.delete(index);
    kept.mark = record.mark;
  } else if ("whole" in record) kept.whole = true;
  else kept.answers.set(record.i, { text: record.text, failed: record.failed });
  return kept;
}

export class Journal {
  readonly #path: string;
  readonly #of: string;
  #file: Written;
  #size: number;
  readonly #waits: boolean;

  private constructor(file: string, of: string, written: Written, size: number, waits: boolean) {
    this.#path = file;
    this.#of = of;
    this.#file = written;
    this.#size = size;
    this.#waits = waits;
  }

  /** @param waits whether this thread may wait for the disk */
  static async open(file: string, of: string, kept: Kept | null, waits: boolean): Promise<Journal> {
    const size = kept?.size ?? 0;
    const journal = new Journal(file, of, await Written.open(file, size), size, waits);
    if (kept === null) {
      await journal.#append([{ version: VERSION, of }]);
      await journal.#file.sync();
    }
    return journal;
  }

  /** Keeps answers: they survive the end of the process from then on. */
  answers(all: readonly (Answered & { index: number })[]): Promise<void> {
    return this.#append(all.map(({ index, failed, text }) => ({ i: index, failed, text })));
  }

  /** Keeps how far the parts are. @param answers those behind the mark */
  async mark(mark: Mark, answers: ReadonlyMap<number, Answered>): Promise<void> {
    if (this.#size < ROTATE) await this.#append([{ mark }]);
    else await this.#rotate(mark, answers);
    await this.#file.sync();
  }

  async whole(): Promise<void> {
    await this.#append([{ whole: true }]);
    await this.#file.sync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #rotate(mark: Mark, answers: ReadonlyMap<number, Answered>): Promise<void> {
    const name = newOf(this.#path);
    const old = this.#file;
    const made = await Written.open(name, 0);
    this.#file = made;
    this.#size = 0;
    try {
      const held = [...answers].map(([i, { failed, text }]) => ({ i, failed, text }));
      await this.#append([{ version: VERSION, of: this.#of }, { mark }, ...held]);
      await made.sync();
      await renameSynced(name, this.#path);
      await old.close();
    } catch (error) {
      // The old one still says all that counts.
      this.#file = old;
      await made.close();
      await rm(name, { force: true });
      throw error;
    }
  }

  async #append(records: readonly Record[]): Promise<void> {
    const bytes = Buffer.from(records.map(toLine).join(""));
    if (this.#waits) this.#file.writeNow(bytes, this.#size);
    else await this.#file.write(bytes, this.#size);
    this.#size += bytes.length;
  }
}
