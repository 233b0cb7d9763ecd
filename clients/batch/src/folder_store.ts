/** Jobs in a folder. A job appears there whole. */

import { randomBytes } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { EngineError } from "ternlight/batch";
import { ALIVE_MS, LEFT_MS } from "./attached.ts";
import { exists, INDEX, INFO, JobFolder, LINES, syncFolder } from "./folder.ts";
import {
  type Admit,
  type Attached,
  type Chunks,
  isJobId,
  type JobInfo,
  type JobSettings,
  type Store,
} from "./store.ts";

/** What a submission that was killed leaves is taken away when nothing was written to it for so many milliseconds. */
const ABANDONED = 86_400_000;
/** Bytes of lines that are written at once. */
const BLOCK = 2 ** 20;
/** The folder of workers' signs of life. */
const WORKERS = ".workers";

export class FolderStore implements Store {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  open(id: string): Promise<JobFolder> {
    return JobFolder.open(this.#root, id);
  }

  async all(): Promise<JobFolder[]> {
    const names = await readdir(this.#root).catch((cause) => {
      if (cause.code === "ENOENT") return [];
      throw new EngineError("Unreadable", `${this.#root}: ${cause.message}`, { file: this.#root }, { cause });
    });
    const jobs = names
      .filter(isJobId)
      .sort()
      .map((id) => this.open(id).catch(noneIfGone));
    return (await Promise.all(jobs)).filter((job) => job !== null);
  }

  async submit(lines: Chunks, settings: JobSettings, admit?: Admit): Promise<JobInfo> {
    const made = await this.#make();
    try {
      await this.#removeAbandoned(made).catch(this.#refused);
      await write(lines, made, this.#refused);
      const info = lines.info(settings);
      await admit?.(info);
      await this.#name(made, info).catch(this.#refused);
      return (await this.open(info.id)).info;
    } finally {
      await rm(made, { recursive: true, force: true });
    }
  }

  async check(): Promise<void> {
    await rm(await this.#make(), { recursive: true, force: true });
  }

  async beat(worker: string, attached: Attached): Promise<void> {
    const folder = path.join(this.#root, WORKERS);
    await mkdir(folder, { recursive: true });
    await replace(path.join(folder, `${worker}.json`), JSON.stringify(attached));
  }

  async leave(worker: string): Promise<void> {
    await rm(path.join(this.#root, WORKERS, `${worker}.json`), { force: true });
  }

  async attached(): Promise<Attached[]> {
    const folder = path.join(this.#root, WORKERS);
    const names = await readdir(folder).catch((): string[] => []);
    const now = await this.#now(folder);
    const found: Attached[] = [];
    for (const name of names) {
      const file = path.join(folder, name);
      const age = now - (await timeOf(file));
      if (age > LEFT_MS) await rm(file, { force: true }).catch(() => {});
      else if (age <= ALIVE_MS && name.endsWith(".json")) {
        // One that left a moment ago, or what is no worker's.
        const one = await readFile(file, "utf8")
          .then(JSON.parse)
          .catch(() => null);
        if (typeof one?.identity === "string") found.push({ facts: {}, ...one });
      }
    }
    return found;
  }

  async alive(workers: readonly string[], ms: number): Promise<string[]> {
    const folder = path.join(this.#root, WORKERS);
    const now = await this.#now(folder);
    const alive: string[] = [];
    for (const worker of workers) {
      if (now - (await timeOf(path.join(folder, `${worker}.json`))) <= ms) alive.push(worker);
    }
    return alive;
  }

  async close(): Promise<void> {}

  /** The time of the file system, which that of its files is by; where nothing can be written, our own. */
  async #now(folder: string): Promise<number> {
    const file = path.join(folder, `.${randomBytes(12).toString("hex")}`);
    try {
      await writeFile(file, "");
      return await timeOf(file);
    } catch {
      return Date.now();
    } finally {
      await rm(file, { force: true }).catch(() => {});
    }
  }

  /** Makes a job of what is written, unless it is there. */
  async #name(made: string, info: JobInfo): Promise<void> {
    const target = path.join(this.#root, info.id);
    if (await exists(path.join(target, INFO))) return;
    await writeFile(path.join(made, INFO), `${JSON.stringify(info, null, 2)}\n`, { flush: true });
    await syncFolder(made);
    // Of two submissions at once one comes first; the other's copy is the same.
    await rename(made, target).catch((error) => {
      if (!["EEXIST", "ENOTEMPTY"].includes(error.code)) throw error;
    });
    await syncFolder(this.#root);
  }

  /** A folder for a job that is on its way. */
  async #make(): Promise<string> {
    const made = path.join(this.#root, `.new-${randomBytes(12).toString("hex")}`);
    await mkdir(made, { recursive: true }).catch(this.#refused);
    return made;
  }

  readonly #refused = (cause: Error): never => {
    const message = `${this.#root} takes no jobs: ${cause.message}`;
    throw new EngineError("Unwritable", message, { file: this.#root, option: "folder" }, { cause });
  };

  /** @param made was made a moment ago: its time is that of the file system, as that of all that is written there by whatever machine */
  async #removeAbandoned(made: string): Promise<void> {
    const now = await timeOf(made);
    for (const name of await readdir(this.#root)) {
      if (!/^\.new-[0-9a-f]{24}$/.test(name)) continue;
      const folder = path.join(this.#root, name);
      // Of a submission that is under way nothing but this file grows.
      const last = Math.max(await timeOf(folder), await timeOf(path.join(folder, LINES)));
      if (now - last > ABANDONED) await rm(folder, { recursive: true, force: true });
    }
  }
}

/** A reader meets the old file or the new one. */
async function replace(file: string, text: string): Promise<void> {
  const part = `${file}.part`;
  await writeFile(part, text);
  await rename(part, file);
}

/** When a file was written last, in milliseconds; 0 where there is none. */
async function timeOf(file: string): Promise<number> {
  const found = await stat(file).catch((error) => {
    if (error.code !== "ENOENT") throw error;
    return null;
  });
  return found?.mtimeMs ?? 0;
}

/** A folder that is being deleted, or was never a job's, keeps nobody from the others. */
function noneIfGone(error: EngineError): null {
  if (["ENOENT", "ENOTDIR"].includes((error.cause as NodeJS.ErrnoException).code ?? "")) return null;
  throw error;
}

/** @param refused throws what says that the folder takes nothing; what the reader of lines throws stays what it is */
async function write(chunks: Chunks, folder: string, refused: (cause: Error) => never): Promise<void> {
  const opening = Promise.all([LINES, INDEX].map((name) => open(path.join(folder, name), "wx")));
  const [lines, index] = await opening.catch(refused);
  let [texts, offsets]: [Buffer[], bigint[]] = [[], []];
  let [size, waiting] = [0, 0];
  const flush = async () => {
    await lines!.appendFile(Buffer.concat(texts));
    await index!.appendFile(new Uint8Array(BigUint64Array.from(offsets).buffer));
    [texts, offsets, waiting] = [[], [], 0];
  };
  try {
    for await (const bytes of chunks) {
      offsets.push(BigInt(size));
      texts.push(bytes);
      size += bytes.length;
      waiting += bytes.length;
      if (waiting >= BLOCK) await flush().catch(refused);
    }
    offsets.push(BigInt(size));
    await flush().catch(refused);
    await Promise.all([lines!.datasync(), index!.datasync()]).catch(refused);
  } finally {
    await Promise.all([lines!.close(), index!.close()]);
  }
}
