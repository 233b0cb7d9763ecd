/** The folder of a server's files and batches. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { Folder, newId } from "../../src/batch/folder.ts";
import { folderOf } from "../source/support/models.ts";

const fileOf = (filename: string, created_at = 1_000) =>
  ({
    id: newId("file-"),
    object: "file",
    bytes: 1,
    created_at,
    filename,
    purpose: "batch",
    status: "processed",
  }) as const;

test("files of one second stay in the order in which they came", async (context) => {
  const root = await folderOf(context, {});
  const names = Array.from({ length: 12 }, (_, i) => `${i}.jsonl`);
  const first = (await Folder.open(root)).folder;
  // The first is written last where nobody waits for anybody.
  await Promise.all(
    names.map((name, i) => first.add({ ...fileOf(name), ...(i === 0 ? { pad: "x".repeat(1e7) } : {}) })),
  );
  const listed = ({ files }: Folder) => [...files.values()].map(({ filename }) => filename);
  assert.deepEqual(listed(first), names);
  first.close();
  const again = (await Folder.open(root)).folder;
  assert.deepEqual(listed(again), names);
  const late = fileOf("late.jsonl");
  await again.add(late);
  assert.deepEqual(again.files.get(late.id), late);
  again.close();
  const third = (await Folder.open(root)).folder;
  assert.deepEqual(listed(third), [...names, "late.jsonl"]);
  assert.deepEqual(third.files.get(late.id), late, "its number is not told");
  third.close();
});

test("files without a number come first, by their second", async (context) => {
  const root = await folderOf(context, {});
  const { folder } = await Folder.open(root);
  const [old, older, now] = [fileOf("old", 20), fileOf("older", 10), fileOf("now", 5)];
  await folder.add(now);
  for (const one of [old, older]) await writeFile(path.join(root, "files", `${one.id}.json`), JSON.stringify(one));
  folder.close();
  const again = (await Folder.open(root)).folder;
  assert.deepEqual(
    [...again.files.values()].map(({ filename }) => filename),
    ["older", "old", "now"],
  );
  assert.equal(JSON.parse(await readFile(path.join(root, "files", `${now.id}.json`), "utf8")).number, 1);
  again.close();
});
