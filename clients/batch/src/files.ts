/** The two files of a collected job, under names of this collector's own until they are whole. */

import { createHash, randomBytes } from "node:crypto";
import { open, readdir, rename, rm } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { type Answered, checkPlace, EngineError, lockFile } from "ternlight/batch";
import { syncFolder } from "./folder.ts";

/** Where a collector runs. Collectors of one machine keep each other out; those of two cannot see each other. */
export interface Machine {
  name: string;
  lock(file: string): Promise<{ release(): void } | null>;
}

const here = (): Machine => ({ name: hostname(), lock: lockFile });

type Handle = Awaited<ReturnType<typeof open>>;

interface Part {
  /** The name that it gets. */
  file: string;
  path: string;
  handle: Handle;
}

export class Files {
  readonly #out: Part;
  readonly #errors: Part;
  /** The file of errors is there even where there are none. */
  readonly #always: boolean;
  readonly #lock: { release(): void } | null;
  #open = true;

  private constructor(out: Part, errors: Part, always: boolean, lock: { release(): void } | null) {
    this.#out = out;
    this.#errors = errors;
    this.#always = always;
    this.#lock = lock;
  }

  /** @param given the file of errors, which is there then even where there are none */
  static async open(out: string, given?: string, machine: Machine = here()): Promise<Files> {
    const errors = given ?? out.replace(/(\.jsonl)?$/, ".errors.jsonl");
    for (const file of [out, errors]) await checkPlace(file);
    const lock = await machine.lock(out);
    const made: Part[] = [];
    try {
      for (const file of [out, errors]) made.push(await makePart(file, machine.name, lock !== null));
      return new Files(made[0]!, made[1]!, given !== undefined, lock);
    } catch (error) {
      await Promise.all(made.map(dropPart));
      lock?.release();
      throw error;
    }
  }

  async write(answers: readonly Answered[]): Promise<void> {
    for (const part of [this.#out, this.#errors]) {
      const wanted = answers.filter(({ failed }) => failed === (part === this.#errors));
      if (wanted.length === 0) continue;
      const texts = wanted.map(({ text }) => `${text}\n`).join("");
      await part.handle.appendFile(texts).catch((cause) => {
        throw unwritable(part.file, cause);
      });
    }
  }

  /** Gives the files their names. @param failed whether there are errors */
  async finish(failed: boolean): Promise<void> {
    const [out, errors] = [this.#out, this.#errors];
    const named = this.#always || failed;
    for (const part of named ? [errors, out] : [out]) {
      try {
        await part.handle.sync();
        await rename(part.path, part.file);
      } catch (cause) {
        throw unwritable(part.file, cause);
      }
    }
    // An earlier job's, which would be taken for this one's.
    if (!named) await rm(errors.file, { force: true });
    for (const folder of new Set([errors, out].map(({ file }) => path.dirname(file)))) await syncFolder(folder);
  }

  /** What has no name by now goes away. */
  async close(): Promise<void> {
    if (!this.#open) return;
    this.#open = false;
    await Promise.all([this.#out, this.#errors].map(dropPart));
    this.#lock?.release();
  }
}

/** @param alone nobody else on this machine writes the file: parts of this machine are of collectors that died */
async function makePart(file: string, machine: string, alone: boolean): Promise<Part> {
  const own = createHash("sha256").update(machine).digest("hex").slice(0, 8);
  const [folder, name] = [path.dirname(file), path.basename(file)];
  const pattern = /^\.([0-9a-f]{8})-[0-9a-f]{12}\.part$/;
  try {
    for (const found of alone ? await readdir(folder) : []) {
      if (!found.startsWith(name) || pattern.exec(found.slice(name.length))?.[1] !== own) continue;
      await rm(path.join(folder, found), { force: true });
    }
    const made = `${file}.${own}-${randomBytes(6).toString("hex")}.part`;
    return { file, path: made, handle: await open(made, "wx") };
  } catch (cause) {
    throw unwritable(file, cause);
  }
}

async function dropPart({ path, handle }: Part): Promise<void> {
  await handle.close().catch(() => {});
  await rm(path, { force: true }).catch(() => {});
}

const unwritable = (file: string, cause: unknown) =>
  new EngineError("Unwritable", `${file} cannot be written: ${(cause as Error).message}`, { file }, { cause });
