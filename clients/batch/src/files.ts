/** The two files of a collected job, under names of this collector's own until they are whole. */

import { createHash, randomBytes } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
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
  lock: { release(): void } | null;
}

export interface Targets {
  /** The file of errors, which is there then even where there are none. @default OUT.errors.jsonl, where there are such lines */
  errors?: string | undefined;
  /** Replaces files that are there, also with other answers. @default false */
  force?: boolean | undefined;
}

const named = (out: string, { errors = out.replace(/(\.jsonl)?$/, ".errors.jsonl") }: Targets): [string, string] => [
  out,
  errors,
];

/** Refuses files that are there already where the job cannot have given them: it is not `whole`. */
export async function checkThere(out: string, targets: Targets, whole: () => Promise<boolean>): Promise<void> {
  const there = targets.force ? undefined : named(out, targets).find((file) => existsSync(file));
  if (there !== undefined && !(await whole())) throw taken(there);
}

export class Files {
  readonly #out: Part;
  readonly #errors: Part;
  /** The file of errors is there even where there are none. */
  readonly #always: boolean;
  readonly #force: boolean;
  #open = true;

  private constructor(out: Part, errors: Part, always: boolean, force: boolean) {
    this.#out = out;
    this.#errors = errors;
    this.#always = always;
    this.#force = force;
  }

  static async open(out: string, targets: Targets = {}, machine: Machine = here()): Promise<Files> {
    const [, errors] = named(out, targets);
    const { force = false } = targets;
    if (path.resolve(out) === path.resolve(errors)) {
      throw new EngineError("InvalidArgument", `out and errors are both ${out}`, { option: "errors", file: out });
    }
    for (const file of [out, errors]) await checkPlace(file);
    const made: Part[] = [];
    try {
      for (const file of [out, errors]) made.push(await makePart(file, machine));
      return new Files(made[0]!, made[1]!, targets.errors !== undefined, force);
    } catch (error) {
      await Promise.all(made.map(dropPart));
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
    for (const part of this.#force ? [] : [errors, out]) await checkSame(part);
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
  }
}

async function makePart(file: string, machine: Machine): Promise<Part> {
  const lock = await machine.lock(file);
  const own = createHash("sha256").update(machine.name).digest("hex").slice(0, 8);
  const [folder, name] = [path.dirname(file), path.basename(file)];
  const pattern = /^\.([0-9a-f]{8})-[0-9a-f]{12}\.part$/;
  try {
    // Nobody else on this machine writes the file: parts of this machine are of collectors that died.
    for (const found of lock ? await readdir(folder) : []) {
      if (!found.startsWith(name) || pattern.exec(found.slice(name.length))?.[1] !== own) continue;
      await rm(path.join(folder, found), { force: true });
    }
    const made = `${file}.${own}-${randomBytes(6).toString("hex")}.part`;
    return { file, path: made, handle: await open(made, "wx"), lock };
  } catch (cause) {
    lock?.release();
    throw unwritable(file, cause);
  }
}

async function dropPart({ path, handle, lock }: Part): Promise<void> {
  await handle.close().catch(() => {});
  await rm(path, { force: true }).catch(() => {});
  lock?.release();
}

/** Who collects a job once more may replace what it has written before. */
async function checkSame({ file, path }: Part): Promise<void> {
  if (existsSync(file) && (await hashOf(file)) !== (await hashOf(path))) throw taken(file);
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash("sha256");
  try {
    for await (const bytes of createReadStream(file)) hash.update(bytes);
  } catch (cause) {
    throw new EngineError("Unreadable", `${file}: ${(cause as Error).message}`, { file }, { cause });
  }
  return hash.digest("hex");
}

const taken = (file: string) =>
  new EngineError("Exists", `${file} exists, and is not what the job gives; --force replaces it`, { file });

const unwritable = (file: string, cause: unknown) =>
  new EngineError("Unwritable", `${file} cannot be written: ${(cause as Error).message}`, { file }, { cause });
