/** The folder of jobs: what a submission that was killed leaves, folders that are none of a job's, a disk that is full. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { FolderStore } from "../src/folder_store.ts";
import { Chunks } from "../src/store.ts";
import { fill, mountSmall } from "./support/disks.mjs";
import { IDENTITY, rows } from "./support/lines.mjs";

const DAY = 86_400;

async function folder(context) {
  const made = await mkdtemp(path.join(tmpdir(), "ternlight-folder-"));
  context.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

const give = (root, lines = 10) =>
  new FolderStore(root).submit(new Chunks(rows(lines), 8), { identity: IDENTITY, model: "m" });

test("a submission is taken away a day after it wrote last, by the file system's own time", async (context) => {
  const root = await folder(context);
  /** @param ages in days, of the folder and of its lines */
  const begun = async (digit, ages) => {
    const name = `.new-${digit.repeat(24)}`;
    await mkdir(path.join(root, name));
    const files = [name, path.join(name, "lines")].slice(0, ages.length);
    if (files.length > 1) await writeFile(path.join(root, files[1]), "x");
    for (const [i, age] of ages.entries()) {
      const at = Date.now() / 1000 - age * DAY;
      await utimes(path.join(root, files[i]), at, at);
    }
    return name;
  };
  const growing = await begun("a", [3, 0.01]);
  const slow = await begun("b", [0.9, 0.9]);
  const young = await begun("c", [0.1]);
  await begun("d", [3, 3]);
  await begun("e", [3]);
  const now = Date.now;
  context.after(() => {
    Date.now = now;
  });
  // Of no account is the clock of whoever submits.
  for (const hours of [2, 48, -48]) {
    Date.now = () => now() + hours * 3_600_000;
    const { id } = await give(root);
    assert.deepEqual((await readdir(root)).sort(), [growing, slow, young, id].sort());
  }
});

test("a folder that holds no job keeps nobody from the others", async (context) => {
  const root = await folder(context);
  const { id } = await give(root);
  await mkdir(path.join(root, "0".repeat(32)));
  await writeFile(path.join(root, "1".repeat(32)), "a file");
  assert.deepEqual(
    (await new FolderStore(root).all()).map(({ info }) => info.id),
    [id],
  );
  // What is there and cannot be read is told.
  await writeFile(path.join(root, id, "job.json"), "{");
  await assert.rejects(new FolderStore(root).all(), { code: "NotFound" });
});

test("a full folder is told by its name to who submits, and the same call goes on", async (context) => {
  const root = await mkdtemp(path.join(tmpdir(), "ternlight-folder-"));
  const unmount = mountSmall(root, 1);
  context.after(async () => {
    unmount?.();
    await rm(root, { recursive: true, force: true });
  });
  if (!unmount) return context.skip("a small file system cannot be mounted here: mount needs root");
  const room = await fill(root);
  const full = {
    code: "Unwritable",
    message: new RegExp(`^${root} takes no jobs: ENOSPC`),
    detail: { option: "folder", file: root },
  };
  await assert.rejects(give(root, 5000), full);
  await room();
  const { id } = await give(root, 5000);
  assert.deepEqual(await readdir(root), [id]);
  // What the reader of lines says is no fault of the folder.
  const broken = (async function* () {
    yield [{ index: 0, text: "{}" }];
    throw new Error("no more lines");
  })();
  const given = new FolderStore(root).submit(new Chunks(broken, 1), { identity: IDENTITY, model: "m" });
  await assert.rejects(given, /^Error: no more lines$/);
});
