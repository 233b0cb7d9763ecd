/**
 * The shared folder: for each job its lines, and a file of answers for each chunk. A file of answers appears whole and is never replaced:
 * who finishes late changes nothing.
 */

import { randomBytes } from "node:crypto";
import { access, link, mkdir, open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { type Answered, EngineError, type Line } from "ternlight/batch";
import { answersOf, answersText, linesOf } from "./records.ts";
import { type ChunkRef, isJobId, type Job, type JobInfo, noJob, sizeOf } from "./store.ts";

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

export class JobFolder implements Job {
  readonly place: string;
  readonly info: JobInfo;

  private constructor(folder: string, info: JobInfo) {
    this.place = folder;
    this.info = info;
  }

  static async open(root: string, id: string): Promise<JobFolder> {
    const folder = path.join(root, id);
    const file = path.join(folder, INFO);
    try {
      if (!isJobId(id)) throw new Error("it is no job's id");
      return new JobFolder(folder, JSON.parse(await readFile(file, "utf8")));
    } catch (cause) {
      throw noJob(id, root, (cause as Error).message, cause);
    }
  }

  cancelled(): Promise<boolean> {
    return exists(path.join(this.place, CANCELLED));
  }

  async cancel(): Promise<void> {
    await writeFile(path.join(this.place, CANCELLED), "");
  }

  async resume(): Promise<void> {
    await rm(path.join(this.place, CANCELLED), { force: true });
  }

  async lines(chunk: number): Promise<Line[]> {
    const offsets = await read(path.join(this.place, INDEX), chunk * OFFSET, 2 * OFFSET);
    const [from, to] = [Number(offsets.readBigUInt64LE(0)), Number(offsets.readBigUInt64LE(OFFSET))];
    const bytes = await read(path.join(this.place, LINES), from, to - from);
    return linesOf(bytes, chunk * this.info.chunk);
  }

  has(chunk: number, line?: number): Promise<boolean> {
    return exists(this.#place(chunk, line));
  }

  async answers(chunk: number): Promise<Answered[] | null> {
    const whole = await this.#read(this.#place(chunk));
    if (whole || !(await exists(this.#split(chunk)))) return whole;
    const all: Answered[] = [];
    for (let line = 0; line < sizeOf(this.info, chunk); line++) {
      const one = await this.#read(this.#place(chunk, line));
      if (!one) return null;
      all.push(...one);
    }
    return all;
  }

  async keep(answers: readonly Answered[], chunk: number, line?: number): Promise<void> {
    await createWhole(this.#place(chunk, line), answersText(answers));
  }

  split(chunk: number): Promise<void> {
    return createWhole(this.#split(chunk), "");
  }

  isSplit(chunk: number): Promise<boolean> {
    return exists(this.#split(chunk));
  }

  async missing(from: number, end: number): Promise<ChunkRef[]> {
    const found: ChunkRef[] = [];
    for (let chunk = from; chunk < end; chunk++) {
      if (await this.has(chunk)) continue;
      if (!(await this.isSplit(chunk))) found.push({ chunk });
      else {
        for (let line = 0; line < sizeOf(this.info, chunk); line++) {
          if (!(await this.has(chunk, line))) found.push({ chunk, line });
        }
      }
    }
    return found;
  }

  async begin(worker: string, chunk: number, line?: number): Promise<void> {
    const file = this.#begun(worker, chunk, line);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, "");
  }

  async end(worker: string, chunk: number, line?: number): Promise<void> {
    await rm(this.#begun(worker, chunk, line), { force: true });
  }

  async begun(chunk: number, line?: number): Promise<string[]> {
    const before = path.basename(this.#begun("", chunk, line));
    const names = await readdir(path.dirname(this.#place(chunk))).catch((): string[] => []);
    return names.filter((name) => name.startsWith(before)).map((name) => name.slice(before.length));
  }

  async forget(chunk: number): Promise<void> {
    const lines = Array.from({ length: sizeOf(this.info, chunk) }, (_, line) => line);
    for (const line of [undefined, ...lines]) {
      for (const worker of await this.begun(chunk, line)) await this.end(worker, chunk, line);
      await rm(this.#place(chunk, line), { force: true });
    }
    await rm(this.#split(chunk), { force: true });
  }

  async done(): Promise<number> {
    const folder = path.join(this.place, "answers");
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
    return path.join(this.place, "answers", folder, `${chunk}${line === undefined ? "" : `.${line}`}`);
  }

  #begun(worker: string, chunk: number, line?: number): string {
    return `${this.#place(chunk, line)}.begun-${worker}`;
  }

  #split(chunk: number): string {
    return `${this.#place(chunk)}.split`;
  }

  async #read(file: string): Promise<Answered[] | null> {
    const bytes = await readFile(file).catch((cause) => {
      if (cause.code === "ENOENT") return null;
      throw new EngineError("Unreadable", `${file}: ${cause.message}`, { file }, { cause });
    });
    return bytes && answersOf(bytes);
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
