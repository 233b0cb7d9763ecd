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
