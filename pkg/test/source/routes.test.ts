/** One model in many containers, by every route: the answers are the same bits. */

import assert from "node:assert/strict";
import path from "node:path";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";
import type { ModelSource } from "ternlight";
import { blobs, dropped, folderOf, goldenFile, goldenFolder, goldenPath, logitsOf } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import { type Files, json, shardSafetensors, splitGguf } from "./support/split.ts";

const INDEX = "model.safetensors.index.json";
const second = "tiny-00002-of-00003.gguf";

const gguf = { expected: [] as Float32Array[], parts: {} as Files };
const hf = { expected: [] as Float32Array[], files: {} as Files };

before(async () => {
  const file = "gguf/llama_bitlinear.TQ2_0.gguf";
  gguf.expected = await logitsOf(goldenPath(file));
  gguf.parts = splitGguf(await goldenFile(file), "tiny", 3);
  hf.expected = await logitsOf(goldenPath("models/bitnet_packed"));
  const { "model.safetensors": whole, ...side } = await goldenFolder("models/bitnet_packed");
  const { files, weightMap } = shardSafetensors(whole!, 4);
  hf.files = { ...side, ...files, [INDEX]: json({ metadata: {}, weight_map: weightMap }) };
});

async function expectSame(source: ModelSource, expected: Float32Array[]): Promise<void> {
  assert.deepEqual(await logitsOf(source), expected);
}

const reversed = <T>(record: Record<string, T>): Record<string, T> =>
  Object.fromEntries(Object.entries(record).reverse());

test("a split GGUF by path", async (context) => {
  const folder = await folderOf(context, { ...gguf.parts, "notes.txt": json("no model") });
  for (const name of Object.keys(gguf.parts)) await expectSame(path.join(folder, name), gguf.expected);
  await expectSame(pathToFileURL(path.join(folder, second)), gguf.expected);
  await expectSame(folder, gguf.expected);
  await expectSame(`${folder}/`, gguf.expected);
});

test("a split GGUF as blobs, in any order", async () => {
  await expectSame(blobs(reversed(gguf.parts)), gguf.expected);
  await expectSame(dropped(reversed(gguf.parts)), gguf.expected);
});

test("a split GGUF whose names are in another order than its parts", async () => {
  const [a, b, c] = Object.keys(gguf.parts) as [string, string, string];
  const { [a]: one, [b]: two, [c]: three } = blobs(gguf.parts);
  await expectSame({ [a]: three!, [b]: one!, [c]: two! }, gguf.expected);
});

for (const noRanges of [false, true]) {
  test(`from a server ${noRanges ? "without" : "with"} ranges`, async (context) => {
    const { url, asked } = await serveFiles(context, { ...gguf.parts, ...hf.files }, { noRanges });
    await expectSame(`${url}${second}`, gguf.expected);
    await expectSame(
      Object.keys(gguf.parts).map((name) => url + name),
      gguf.expected,
    );
    await expectSame(`${url}${second}?download=true`, gguf.expected);
    await expectSame(url, hf.expected);
    await expectSame(url + INDEX, hf.expected);
    if (!noRanges) return;
    const names = asked.slice(0, 3).map(({ path }) => path);
    assert.deepEqual(names.sort(), Object.keys(gguf.parts), "each part once");
  });
}

test("sharded safetensors from every kind of folder", async (context) => {
  await expectSame(await folderOf(context, hf.files), hf.expected);
  await expectSame(blobs(reversed(hf.files)), hf.expected);
  await expectSame(dropped(hf.files), hf.expected);
});

test("shards without an index, and by the name of one", async (context) => {
  const { [INDEX]: _, ...files } = hf.files;
  const folder = await folderOf(context, files);
  await expectSame(folder, hf.expected);
  await expectSame(path.join(folder, "model-00003-of-00004.safetensors"), hf.expected);
  await expectSame(blobs(files), hf.expected);
});

test("shards and GGUF of one golden model agree with its whole file", async () => {
  const sharded = await logitsOf(goldenPath("models/llama_f32"));
  assert.equal(sharded.length, 8);
  const { "model.safetensors": whole, ...side } = await goldenFolder("models/qwen3");
  const { files, weightMap } = shardSafetensors(whole!, 2);
  const expected = await logitsOf(goldenPath("models/qwen3/model.safetensors"));
  await expectSame(blobs({ ...side, ...files, [INDEX]: json({ weight_map: weightMap }) }), expected);
});

test("a folder with one GGUF is that model, whatever else lies there", async (context) => {
  const whole = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  const files = { "any name.GGUF": whole, "README.md": json("x"), "._any name.gguf": json("a fork") };
  await expectSame(await folderOf(context, files), gguf.expected);
  await expectSame(blobs(files), gguf.expected);
  await expectSame([new Blob([whole])], gguf.expected);
});
