/** Puts the lines of a job into the shared folder. The same lines, model and options are the same job. */

import { createHash, randomBytes } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Line } from "ternlight/batch";
import { exists, INDEX, INFO, JobFolder, type JobInfo, LINES, syncFolder, toLine } from "./folder.ts";

export interface SubmitOptions {
  /** A folder that all machines see. */
  folder: string;
  /** Blocks of lines, in order. */
  rows: AsyncIterable<readonly Line[]>;
  /** Of all that answers depend on beside the lines: `identity` of what `openAnswerer` gives. */
  identity: string;
  /** The model's name, as the answers have it. */
  model: string;
  /** Lines of a chunk. @default 32 */
  chunk?: number;
  /** Jobs with a lower number go first. @default in the order in which they came */
  priority?: number;
}

/** What a submission that was killed leaves is taken away after so many milliseconds. */
const ABANDONED = 3_600_000;

export async function submit(options: SubmitOptions): Promise<JobInfo> {
  const { folder, rows, identity, model, chunk = 32, priority } = options;
  await mkdir(folder, { recursive: true });
  await removeAbandoned(folder);
  const made = path.join(folder, `.new-${randomBytes(12).toString("hex")}`);
  await mkdir(made);
  try {
    const { lines, hash } = await copy(rows, made, chunk);
    const id = createHash("sha256")
      .update(JSON.stringify([hash, chunk, identity, model]))
      .digest("hex")
      .slice(0, 32);
    const chunks = Math.ceil(lines / chunk);
    const more = priority === undefined ? {} : { priority };
    const info: JobInfo = { id, version: 1, identity, model, lines, chunk, chunks, ...more };
    const target = path.join(folder, id);
    if (!(await exists(path.join(target, INFO)))) {
      await writeFile(path.join(made, INFO), `${JSON.stringify(info, null, 2)}\n`, { flush: true });
      await syncFolder(made);
      // Of two submissions at once one comes first; the other's copy is the same.
      await rename(made, target).catch((error) => {
        if (!["EEXIST", "ENOTEMPTY"].includes(error.code)) throw error;
      });
      await syncFolder(folder);
    }
    return (await JobFolder.open(folder, id)).info;
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

/** Bytes of lines and of offsets that are written at once. */
const BLOCK = 2 ** 20;

async function copy(rows: AsyncIterable<readonly Line[]>, folder: string, chunk: number) {
  const hash = createHash("sha256");
  const [lines, index] = await Promise.all([LINES, INDEX].map((name) => open(path.join(folder, name), "wx")));
  let [count, size] = [0, 0];
  let texts: string[] = [];
  let waiting = 0;
  let offsets: bigint[] = [];
  const flush = async () => {
    const bytes = Buffer.from(texts.join(""));
    hash.update(bytes);
    await lines!.appendFile(bytes);
    await index!.appendFile(new Uint8Array(BigUint64Array.from(offsets).buffer));
    [texts, waiting, offsets] = [[], 0, []];
  };
  try {
    for await (const block of rows) {
      for (const line of block) {
        if (count % chunk === 0) offsets.push(BigInt(size));
        const text = `${toLine(line)}\n`;
        const bytes = Buffer.byteLength(text);
        size += bytes;
        waiting += bytes;
        count++;
        texts.push(text);
        if (waiting >= BLOCK) await flush();
      }
    }
    offsets.push(BigInt(size));
    await flush();
    await Promise.all([lines!.datasync(), index!.datasync()]);
  } finally {
    await Promise.all([lines!.close(), index!.close()]);
  }
  return { lines: count, hash: hash.digest("hex") };
}

async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!/^\.new-[0-9a-f]{24}$/.test(name)) continue;
    const found = await stat(path.join(folder, name)).catch(() => null);
    if (found && Date.now() - found.mtimeMs > ABANDONED) {
      await rm(path.join(folder, name), { recursive: true, force: true });
    }
  }
}
