/** What an interrupted run has left: kept whole, and used again for the same model and options alone. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir, readFile, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { Memo, textsOf } from "../../src/cli/calibration.ts";
import { lookAt } from "../../src/cli/tools.ts";
import { json, start } from "../cli/support/ternlight.ts";
import { folderOf } from "../source/support/models.ts";
import { serveFiles } from "../source/support/server.ts";
import { demoText } from "./support/craft.ts";

const stopped = new Error("stopped");

test("numbers are kept when a run fails, and found again with the same facts alone", async (context) => {
  const folder = await folderOf(context, {});
  const file = path.join(folder, "out.partial");
  const facts = { model: ["m", [["m", 3, "a"]]], load: { kvCacheType: "f32", threads: 1 }, tokens: 64 } as const;
  const failing = Memo.during(file, facts, async (memo) => {
    for (let i = 0; i < 1000; i++) {
      memo.numbers.set(`loss ${i}`, i / 7);
      memo.save();
    }
    throw stopped;
  });
  await assert.rejects(failing, stopped);
  assert.deepEqual(await readdir(folder), ["out.partial"], "nothing half written lies beside it");
  const left = await readFile(file);
  const found = async (given: Parameters<typeof Memo.during>[1]) => {
    await writeFile(file, left);
    let size = 0;
    await Memo.during(file, given, async ({ numbers }) => {
      size = numbers.size;
    });
    assert.ok(!existsSync(file), "what is done leaves nothing");
    return size;
  };
  assert.equal(await found(facts), 1000);
  assert.equal(await found({ ...facts, load: { threads: 2, kvCacheType: "f32" } }), 1000, "threads change no number");
  const others = [
    { ...facts, load: {} },
    { ...facts, load: { ...facts.load, activations: { "blk.*": "int2" } } },
    { ...facts, load: { ...facts.load, head: "q6_k" } },
    { ...facts, model: ["m", [["m", 3, "b"]]] },
    { ...facts, tokens: 65 },
  ] as const;
  for (const other of others) assert.equal(await found(other), 0, JSON.stringify(other));
});

test("a file without a text is refused by its name", () => {
  for (const name of ["a.txt", "a.jsonl"])
    for (const data of ["", " \n\n"])
      assert.throws(() => textsOf(data, name), { code: "BadValue", message: `${name} holds no text` });
  assert.deepEqual(textsOf("a\nb", "a.txt"), ["a\nb"]);
});

test("a model's version changes with its files, on disk and on a server", async (context: TestContext) => {
  const signal = new AbortController().signal;
  const folder = await folderOf(context, { "model.gguf": new TextEncoder().encode("GGUF and more") });
  const file = path.join(folder, "model.gguf");
  const onDisk = async () => lookAt({ kind: "path", path: file }, signal);
  const { gguf, version } = await onDisk();
  assert.equal(gguf, true);
  assert.deepEqual((await onDisk()).version, version);
  await utimes(file, 1, 1);
  assert.notDeepEqual((await onDisk()).version, version);
  let etag = '"one"';
  const { url } = await serveFiles(
    context,
    { "model.gguf": await readFile(file) },
    { announce: (headers) => ({ ...headers, etag }) },
  );
  const served = async () => (await lookAt({ kind: "url", url: `${url}model.gguf`, headers: [] }, signal)).version;
  const before = await served();
  assert.deepEqual(await served(), before);
  assert.deepEqual(before[0]!.slice(1), [13, '"one"']);
  etag = '"two"';
  assert.notDeepEqual(await served(), before);
});

test("a prune that was killed begins anew with other options", async (context) => {
  const text = new TextEncoder().encode(demoText().slice(0, 4000));
  const folder = await folderOf(context, { "data.txt": text });
  const [out, fresh] = ["out.gguf", "fresh.gguf"].map((name) => path.join(folder, name)) as [string, string];
  const command = (output: string, ...more: string[]) => [
    ...["prune", "ternlight-demo", "--by", "search", "--calibration-data", path.join(folder, "data.txt")],
    ...["--target-layers", "4", "--calibration-tokens", "64", "--threads", "1", "--output", output, ...more],
  ];
  const { child, ended } = start(command(out));
  while (!existsSync(`${out}.partial`)) {
    assert.equal(child.exitCode, null, "it was done before it could be stopped");
    await wait(20);
  }
  child.kill("SIGKILL");
  await ended;
  const narrow = ["--activations", '{"blk.*":"int2"}'];
  const [again, anew] = await Promise.all([json(...command(out, ...narrow)), json(...command(fresh, ...narrow))]);
  const { kept, curve, compared } = again;
  assert.deepEqual([kept, curve], [anew.kept, anew.curve]);
  // Before and after are measured as the curve is.
  const loss = (perplexity: number) => Math.log(perplexity);
  assert.ok(Math.abs(loss(compared.before.perplexity) - loss(curve[0].perplexity)) < 1, JSON.stringify(compared));
  assert.deepEqual(compared.before.activations, { "blk.*": "int2" });
});
