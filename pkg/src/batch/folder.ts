/** A folder of files and batches. Names of files are made here, of random ids; what clients call theirs is a text in a record. */

import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { type Batch, ENDED, type FileObject } from "../openai/batches.ts";
import { EngineError } from "../types/errors.ts";
import { exists, lock, renameSynced, unwritable, writeWhole } from "./disk.ts";

/** A batch, and the ids that its results will have. */
export interface BatchRecord {
  batch: Batch;
  output: string;
  errors: string;
  /** Grows with each batch; records without one came before all that have one. */
  number?: number;
}

/** A file, and its number, as that of a batch. It is not told to clients. */
interface FileRecord extends FileObject {
  number?: number;
}

export const newId = (prefix: "file-" | "batch_"): string => prefix + randomBytes(16).toString("hex");
export const now = (): number => Math.floor(Date.now() / 1000);

const RECORD = /^(file-|batch_)[0-9a-f]{32}\.json$/;
const NEW_RECORD = /^(file-|batch_)[0-9a-f]{32}\.json\.new$/;
/** The bytes of a file, of an upload, or of results under way. */
const DATA = /^(file-[0-9a-f]{32})\.jsonl(\.|$)/;

export class Folder {
  readonly #path: string;
  readonly #lock: { release(): void } | null;
  /** In the order in which they came. */
  readonly files: Map<string, FileObject>;
  #last: number;
  #adding: Promise<unknown> = Promise.resolve();

  private constructor(folder: string, held: { release(): void } | null, records: readonly FileRecord[]) {
    this.#path = folder;
    this.#lock = held;
    this.files = new Map(records.map(({ number: _, ...file }) => [file.id, file]));
    this.#last = numberOf(records.at(-1) ?? {});
  }

  /** Opens a folder for this process alone. */
  static async open(folder: string): Promise<{ folder: Folder; batches: BatchRecord[] }> {
    try {
      for (const name of ["files", "batches"]) await mkdir(path.join(folder, name), { recursive: true });
    } catch (cause) {
      throw unwritable(folder, cause);
    }
    const held = await lock(path.join(folder, "batches"));
    try {
      const files = (await recordsIn(path.join(folder, "files"))) as FileRecord[];
      const batches = (await recordsIn(path.join(folder, "batches"))) as BatchRecord[];
      // Of records without a number all that is known is the second; the order of a folder's names is none.
      const byName = (a: string, b: string) => (a < b ? -1 : 1);
      files.sort((a, b) => numberOf(a) - numberOf(b) || a.created_at - b.created_at || byName(a.id, b.id));
      batches.sort((a, b) => numberOf(a) - numberOf(b) || a.batch.created_at - b.batch.created_at);
      const open = batches.filter(({ batch }) => !ENDED.includes(batch.status));
      const used = [...files.map(({ id }) => id), ...open.flatMap(({ output, errors }) => [output, errors])];
      await clean(path.join(folder, "files"), new Set(used));
      return { folder: new Folder(folder, held, files), batches };
    } catch (error) {
      held?.release();
      throw error;
    }
  }

  close(): void {
    this.#lock?.release();
  }

  /** Where the bytes of a file lie. */
  dataOf(id: string): string {
    return path.join(this.#path, "files", `${id}.jsonl`);
  }

  /** Makes bytes that lie in their place a file: one after another, so that their order is the one after a restart, too. */
  add(file: FileObject): Promise<void> {
    const added = this.#adding.then(async () => {
      const record: FileRecord = { ...file, number: ++this.#last };
      await writeWhole(this.#recordOf(file.id), JSON.stringify(record));
      this.files.set(file.id, file);
    });
    this.#adding = added.catch(() => {});
    return added;
  }

  /** The same for bytes that lie beside their place. */
  async addNew(file: FileObject, from: string): Promise<void> {
    await renameSynced(from, this.dataOf(file.id));
    await this.add(file);
  }

  async remove(id: string): Promise<void> {
    this.files.delete(id);
    for (const file of [this.#recordOf(id), this.dataOf(id)]) await rm(file, { force: true });
  }

  read(id: string): ReadableStream<Uint8Array> {
    return Readable.toWeb(createReadStream(this.dataOf(id))) as ReadableStream<Uint8Array>;
  }

  has(id: string): Promise<boolean> {
    return exists(this.dataOf(id));
  }

  async keep(record: BatchRecord): Promise<void> {
    await writeWhole(this.#batchOf(record.batch.id), JSON.stringify(record));
  }

  async forget(id: string): Promise<void> {
    await rm(this.#batchOf(id), { force: true });
  }

  #recordOf(id: string): string {
    return path.join(this.#path, "files", `${id}.json`);
  }

  #batchOf(id: string): string {
    return path.join(this.#path, "batches", `${id}.json`);
  }
}

const numberOf = ({ number = 0 }: { number?: number }): number => number;

/** Removes bytes that the end of a process has left without a record. */
async function clean(folder: string, used: ReadonlySet<string>): Promise<void> {
  for (const name of await readdir(folder)) {
    const id = DATA.exec(name)?.[1];
    if (id !== undefined && !used.has(id)) await rm(path.join(folder, name));
  }
}

async function recordsIn(folder: string): Promise<unknown[]> {
  const names = await readdir(folder);
  for (const name of names.filter((one) => NEW_RECORD.test(one))) await rm(path.join(folder, name));
  const records: unknown[] = [];
  for (const name of names.filter((one) => RECORD.test(one))) {
    const file = path.join(folder, name);
    try {
      records.push(JSON.parse(await readFile(file, "utf8")));
    } catch (cause) {
      throw new EngineError("Damaged", `${file}: ${(cause as Error).message}`, { file }, { cause });
    }
  }
  return records;
}
