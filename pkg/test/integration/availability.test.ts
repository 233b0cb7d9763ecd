/** Whether a model is here, can come, or cannot run. */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { cache, canRun, type LoadOptions, load, type ModelSource } from "ternlight";
import { availability } from "ternlight/integration";
import { startHub } from "../source/support/hub.ts";
import { goldenFile, goldenFolder } from "../source/support/models.ts";
import { serveFiles } from "../source/support/server.ts";

const of = (source: ModelSource, options?: LoadOptions) => availability({ cache, canRun }, source, options);

async function cacheFolder(context: TestContext): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test("what was downloaded is available, what was not is downloadable", async (context) => {
  const file = await goldenFile("gguf/llama_bitlinear.I2_S.gguf");
  const folder = await goldenFolder("models/bitnet_packed");
  const inFolder = Object.fromEntries(Object.entries(folder).map(([name, bytes]) => [`folder/${name}`, bytes]));
  const announce = (headers: Record<string, string>) => ({ ...headers, etag: '"1"' });
  const { url } = await serveFiles(context, { "model.gguf": file, ...inFolder }, { announce });
  await startHub(context, { repositories: { "owner/repo": { revisions: { main: { "model.gguf": file } } } } });
  const options = { cache: await cacheFolder(context), threads: 1 };
  for (const source of [`${url}model.gguf`, new URL(`${url}model.gguf`), `${url}folder/`, "hf:owner/repo"]) {
    if (typeof source === "string") assert.equal(await of(source, options), "downloadable", source);
    await (await load(source, options)).close();
    assert.equal(await of(source, options), "available", String(source));
    assert.equal(await of(source, { ...options, cache: false }), "downloadable", String(source));
  }
});

test("what cannot run is unavailable, and what cannot be asked is an error", async (context) => {
  const { url } = await serveFiles(context, { "text.gguf": new TextEncoder().encode("this is no model, but a text") });
  assert.equal(await of(`${url}absent.gguf`), "unavailable");
  assert.equal(await of(`${url}text.gguf`), "unavailable");
  assert.equal(await of(await goldenFile("gguf/llama_bitlinear.I2_S.gguf")), "available");
  assert.equal(await of(await goldenFile("gguf/llama_bitlinear.I2_S.gguf"), { kvCacheTokens: 2 ** 24 }), "unavailable");
  await assert.rejects(of("http://127.0.0.1:9/model.gguf"), { code: "Network" });
});

test("on a hub another file, part, folder or revision is another model", async (context) => {
  const file = await goldenFile("gguf/llama_bitlinear.I2_S.gguf");
  const files = { "a.gguf": file, "b.gguf": file, "in a folder/a.gguf": file };
  await startHub(context, {
    repositories: { "owner/repo": { revisions: { main: files, v2: files, "refs/pr/1": files } } },
  });
  const options = { cache: await cacheFolder(context), threads: 1 };
  const all = ["hf:owner/repo/a.gguf", "hf:owner/repo/in a folder", "hf:owner/repo@refs/pr/1/b.gguf"];
  const expect = async (available: readonly string[]) => {
    const others = [
      "hf:owner/repo/b.gguf",
      "hf:owner/repo@v2",
      "hf:owner/repo@v2/a.gguf",
      "hf:owner/repo@refs/pr/1/a.gguf",
    ];
    for (const source of [...all, ...others])
      assert.equal(await of(source, options), available.includes(source) ? "available" : "downloadable", source);
  };
  for (const [i, source] of all.entries()) {
    await (await load(source, options)).close();
    await expect(all.slice(0, i + 1));
  }
  assert.equal(await of("hf:owner/repo", options), "available");
  assert.equal(await of("hf:owner/repo@refs/pr/1", options), "available");
  await assert.rejects(of("hf:owner", options), { code: "InvalidArgument" });
});
