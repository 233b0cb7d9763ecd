/**
 * The shared folder: for each job its lines, and a file of answers for each chunk. A file of answers appears whole and is never replaced:
 * who finishes late changes nothing.
 */

import { randomBytes } from "node:crypto";
import { access, link, mkdir, open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { type Answered, EngineError, type Line } from "ternlight/batch";

export interface JobInfo {
  id: string;
  version: 1;
  /** Of all that the answers depend on beside the lines. */
  identity: string;
  /** The model's name, as the answers have it. */
  model: string;
  lines: number;
  /** Lines of a chunk. */
  chunk: number;
  chunks: number;
  priority?: number;
}

/** Chunks whose answers are in one folder. */
const PER_FOLDER = 1000;
/** Bytes of an offset in the index of chunks. */
const OFFSET = 8;

export const INFO = "job.json";
export const LINES = "lines";
export const INDEX = "index";
const CANCELLED = "cancelled";

export const exists = (file: string): Promise<boolean> =>
  access(file).then(
    () => true,
    () => false,
  );

export class JobFolder {
  readonly path: string;
  readonly info: JobInfo;

  private constructor(folder: string, info: JobInfo) {
    this.path = folder;
    this.info = info;
  }

  static async open(root: string, id: string): Promise<JobFolder> {
    const folder = path.join(root, id);
    const file = path.join(folder, INFO);
    try {
      if (!/^[0-9a-f]{32}$/.test(id)) throw new Error("it is no job's id");
      return new JobFolder(folder, JSON.parse(await readFile(file, "utf8")));
    } catch (cause) {
      const message = `there is no job ${id.slice(0, 100)} in ${root}: ${(cause as Error).message}`;
      throw new EngineError("NotFound", message, { file }, { cause });
    }
  }

  /** All jobs of a folder, by their ids. */
  static async all(root: string): Promise<JobFolder[]> {
    const names = await readdir(root).catch((cause) => {
      if (cause.code === "ENOENT") return [];
      throw new EngineError("Unreadable", `${root}: ${cause.message}`, { file: root }, { cause });
    });
    const ids = names.filter((name) => /^[0-9a-f]{32}$/.test(name)).sort();
    return Promise.all(ids.map((id) => JobFolder.open(root, id)));
  }

  cancelled(): Promise<boolean> {
    return exists(path.join(this.path, CANCELLED));
  }

  async cancel(): Promise<void> {
    await writeFile(path.join(this.path, CANCELLED), "");
  }

  async resume(): Promise<void> {
    await rm(path.join(this.path, CANCELLED), { force: true });
  }

  /** How many lines a chunk has. */
  size(chunk: number): number {
    return Math.min(this.info.chunk, this.info.lines - chunk * this.info.chunk);
  }

  async lines(chunk: number): Promise<Line[]> {
    const offsets = await read(path.join(this.path, INDEX), chunk * OFFSET, 2 * OFFSET);
    const [from, to] = [Number(offsets.readBigUInt64LE(0)), Number(offsets.readBigUInt64LE(OFFSET))];
    const bytes = await read(path.join(this.path, LINES), from, to - from);
    const texts = bytes.toString("utf8").split("\n").slice(0, -1);
    return texts.map((text, i) => fromLine(text, chunk * this.info.chunk + i));
  }

  has(chunk: number, line?: number): Promise<boolean> {
    return exists(this.#place(chunk, line));
  }

  /** The answers to a chunk, or to all of its lines one by one; null while some are missing. */
  async answers(chunk: number): Promise<Answered[] | null> {
    const whole = await this.#read(this.#place(chunk));
    if (whole || !(await exists(this.#split(chunk)))) return whole;
    const all: Answered[] = [];
    for (let line = 0; line < this.size(chunk); line++) {
      const one = await this.#read(this.#place(chunk, line));
      if (!one) return null;
      all.push(...one);
    }
    return all;
  }

  /** Keeps answers for good; where there are some, those stay. */
  async keep(answers: readonly Answered[], chunk: number, line?: number): Promise<void> {
    const text = answers.map((one) => `${one.failed ? 1 : 0}${one.text}\n`).join("");
    await createWhole(this.#place(chunk, line), text);
  }

  /** From now on the lines of a chunk are worked on one by one. */
  split(chunk: number): Promise<void> {
    return createWhole(this.#split(chunk), "");
  }

  isSplit(chunk: number): Promise<boolean> {
    return exists(this.#split(chunk));
  }

  /** Forgets the answers to a chunk. */
  async forget(chunk: number): Promise<void> {
    const lines = Array.from({ length: this.size(chunk) }, (_, line) => this.#place(chunk, line));
    for (const file of [this.#place(chunk), this.#split(chunk), ...lines]) await rm(file, { force: true });
  }

  /** How many chunks have a file of answers, or were split. */
  async done(): Promise<number> {
    const folder = path.join(this.path, "answers");
    const names = await readdir(folder).catch((): string[] => []);
    let count = 0;
    for (const name of names) {
      const files = await readdir(path.join(folder, name)).catch((): string[] => []);
      count += files.filter((file) => /^\d+$/.test(file)).length;
      for (const file of files) {
        const [, chunk] = /^(\d+)\.split$/.exec(file) ?? [];
        if (chunk !== undefined && !files.includes(chunk) && (await this.answers(Number(chunk)))) count++;
      }
    }
    return count;
  }

  #place(chunk: number, line?: number): string {
    const folder = String(Math.floor(chunk / PER_FOLDER)).padStart(6, "0");
    return path.join(this.path, "answers", folder, `${chunk}${line === undefined ? "" : `.${line}`}`);
  }

  #split(chunk: number): string {
    return `${this.#place(chunk)}.split`;
  }

  async #read(file: string): Promise<Answered[] | null> {
    const text = await readFile(file, "utf8").catch((cause) => {
      if (cause.code === "ENOENT") return null;
      throw new EngineError("Unreadable", `${file}: ${cause.message}`, { file }, { cause });
    });
    if (text === null) return null;
    return text
      .split("\n")
      .slice(0, -1)
      .map((line) => ({ failed: line[0] === "1", text: line.slice(1) }));
  }
}

async function read(file: string, from: number, length: number): Promise<Buffer> {
  const handle = await open(file, "r");
  try {
    const bytes = Buffer.alloc(length);
    let at = 0;
    while (at < length) {
      const { bytesRead } = await handle.read(bytes, at, length - at, from + at);
      if (bytesRead === 0) throw new EngineError("Truncated", `${file} ends before byte ${from + length}`, { file });
      at += bytesRead;
    }
    return bytes;
  } finally {
    await handle.close();
  }
}

/** Makes a file that is whole from the first moment, unless there is one. */
async function createWhole(file: string, text: string): Promise<void> {
  const folder = path.dirname(file);
  await mkdir(folder, { recursive: true });
  const part = path.join(folder, `.${randomBytes(12).toString("hex")}.part`);
  try {
    const handle = await open(part, "wx");
    try {
      await handle.writeFile(text);
      await handle.datasync();
    } finally {
      await handle.close();
    }
    await nameOnce(part, file);
  } finally {
    await rm(part, { force: true });
  }
  await syncFolder(folder);
}

/** A link to a name that is taken fails, in one step. File systems without links get the next best. */
async function nameOnce(part: string, file: string): Promise<void> {
  try {
    await link(part, file);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EEXIST") return;
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EMLINK"].includes(code ?? "")) throw cause;
    if (!(await exists(file))) await rename(part, file);
  }
}

export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close();
}

/** A line as the shared folder has it. What could not be read has a mark before it that no JSON begins with. */
export function toLine({ text, fault }: Line): string {
  const plain = fault === undefined && !text.startsWith("!");
  return plain ? text : `!${JSON.stringify({ text, ...(fault ? { fault } : {}) })}`;
}

const fromLine = (line: string, index: number): Line =>
  line.startsWith("!") ? { index, ...JSON.parse(line.slice(1)) } : { index, text: line };
