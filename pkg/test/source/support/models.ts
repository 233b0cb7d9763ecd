/** Golden models whole and in parts, and what loading one computes. */

import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { load, type ModelSource } from "ternlight";
import type { Files } from "./split.ts";

const golden = fileURLToPath(new URL("../../../../tests/golden/", import.meta.url));

export const goldenPath = (name: string): string => path.join(golden, name);

export const goldenFile = async (name: string): Promise<Uint8Array<ArrayBuffer>> =>
  new Uint8Array(await readFile(goldenPath(name)));

/** A model's folder without the values it is tested against. */
export async function goldenFolder(name: string): Promise<Files> {
  const names = (await readdir(goldenPath(name))).filter((file) => !file.startsWith("golden."));
  const entries = names.map(async (file) => [file, await goldenFile(`${name}/${file}`)] as const);
  return Object.fromEntries(await Promise.all(entries));
}

export async function folderOf(context: TestContext, files: Files): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  await Promise.all(Object.entries(files).map(([name, bytes]) => writeFile(path.join(folder, name), bytes)));
  return folder;
}

export const blobs = (files: Files): Record<string, Blob> =>
  Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, new Blob([bytes])]));

/** As a page gets them from a drop. */
export const dropped = (files: Files): File[] => Object.entries(files).map(([name, bytes]) => new File([bytes], name));

const ids = [1, 5, 9, 2, 30, 77, 4, 12];

/** What the model answers: the same bits, whichever way its bytes came. */
export async function logitsOf(source: ModelSource): Promise<Float32Array[]> {
  const model = await load(source, { threads: 1 });
  try {
    return await model.logits(ids, { all: true });
  } finally {
    await model.close();
  }
}
