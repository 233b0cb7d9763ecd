/** Caches with something wrong in them: a load heals what it can, and one bad file hurts no other. */

import assert from "node:assert/strict";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { before, type TestContext, test } from "node:test";
import { cache, type LoadOptions, load } from "ternlight";
import { openDirectory } from "../../src/cache/disk.ts";
import { Entry } from "../../src/cache/entry.ts";
import type { Store } from "../../src/cache/store.ts";
import { folderOf, goldenFile } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import type { Files } from "./support/split.ts";

let tiny: Uint8Array<ArrayBuffer>;
before(async () => {
  tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
});

const announce = (headers: Record<string, string>) => ({ ...headers, etag: '"1"' });

async function ask(source: string, options: LoadOptions): Promise<Float32Array[]> {
  const model = await load(source, { threads: 1, ...options });
  try {
    return await model.logits([1, 5, 9, 2], { all: true });
  } finally {
    await model.close();
  }
}

async function place(context: TestContext, files: Files) {
  const { url, asked } = await serveFiles(context, files, { announce });
  return { url, asked, directory: await folderOf(context, {}) };
}

test("a header that arrived wrong is not kept, and one that was kept is fetched anew", async (context) => {
  const wrong = tiny.slice();
  wrong[60]! ^= 0xff;
  const files = { "tiny.gguf": wrong };
  const { url, asked, directory } = await place(context, files);
  const options = { cache: directory };
  await assert.rejects(ask(`${url}tiny.gguf`, options), { code: "BadHeader" });
  assert.deepEqual(await cache.list({ directory }), []);

  files["tiny.gguf"] = tiny;
  const logits = await ask(`${url}tiny.gguf`, options);
  const [{ id } = { id: "" }] = await cache.list({ directory });
  const bytes = await readFile(path.join(directory, id));
  bytes[bytes.length - tiny.length + 60]! ^= 0xff;
  await writeFile(path.join(directory, id), bytes);
  asked.length = 0;
  assert.deepEqual(await ask(`${url}tiny.gguf`, options), logits);
  assert.ok(asked.some(({ method }) => method === "GET"));
  assert.ok((await cache.list({ directory })).every(({ complete }) => complete));
});

test("a version that makes no model does not replace the one that was kept", async (context) => {
  let [tag, away] = [1, false];
  const files: Files = { "tiny.gguf": tiny };
  const { url } = await serveFiles(context, files, {
    announce: (headers) => ({ ...headers, etag: `"${tag}"` }),
    answer(request) {
      if (away) request.socket.destroy();
      return away;
    },
  });
  const directory = await folderOf(context, {});
  const source = `${url}tiny.gguf`;
  const logits = await ask(source, { cache: directory });
  [files["tiny.gguf"], tag] = [new TextEncoder().encode('{"error": "come again"}'), 2];
  await assert.rejects(ask(source, { cache: directory }), { code: "BadMagic" });
  assert.equal((await cache.list({ directory })).length, 1);
  away = true;
  assert.deepEqual(await ask(source, { cache: directory }), logits);
  [files["tiny.gguf"], tag, away] = [tiny, 3, false];
  assert.deepEqual(await ask(source, { cache: directory }), logits);
  assert.equal((await cache.list({ directory })).length, 1, "the earlier one is gone");
});

test("a file that is wrong takes no other with it", async (context) => {
  const folder = new URL("../../models/ternlight-demo/", import.meta.url);
  const names = (await readdir(folder)).filter((name) => /\.(json|safetensors)$/.test(name));
  const files: Files = {};
  for (const name of names) files[name] = new Uint8Array(await readFile(new URL(name, folder)));
  const { url, asked, directory } = await place(context, files);
  await ask(url, { cache: directory });
  asked.length = 0;
  const wrong = new Blob(["{ no JSON"]);
  const own = { ...Object.fromEntries(names.map((name) => [name, url + name])), "tokenizer.json": wrong };
  await assert.rejects(load(own, { cache: directory, threads: 1 }), { name: "EngineError" });
  assert.ok(asked.every(({ method }) => method === "HEAD"));
  assert.ok((await cache.list({ directory })).some((one) => one.url.endsWith("model.safetensors") && one.complete));
});

test("what cannot be opened is left as it is, and the load goes on without", async (context) => {
  const { url, directory } = await place(context, { "tiny.gguf": tiny });
  await ask(`${url}tiny.gguf`, { cache: directory });
  const name = (await readdir(directory)).find((name) => !name.startsWith("tuning-"));
  const refusing: Store = {
    ...(await openDirectory(directory)),
    read: async () => {
      throw Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
    },
  };
  const warnings: string[] = [];
  const identity = { url, size: tiny.length, validator: '"1"', access: "" };
  const entry = await Entry.open(refusing, name!, identity, (message) => warnings.push(message));
  await entry.keep(0, tiny);
  await entry.close();
  assert.match(warnings.join(), /is not kept: EACCES/);
  assert.ok((await cache.list({ directory })).every(({ complete }) => complete));
});

test("a file with a damaged head, or a folder in its place, hides no other", async (context) => {
  const { url, directory } = await place(context, { "tiny.gguf": tiny });
  await ask(`${url}tiny.gguf?key=1`, { cache: directory });
  const head = (text: string) => new Uint8Array([...new TextEncoder().encode(text), ...new Uint8Array(8192)]);
  const at = (digit: string) => path.join(directory, `${digit.repeat(24)}-${digit.repeat(16)}`);
  await writeFile(at("a"), head('{"format":3,"urm":"http://127.0.0.1/a","size":600000,"validator":"1","access":""}'));
  await writeFile(at("b"), head('{"format":3,"url":"http://127.0.0.1/b","size":-8000000,"validator":"1","access":""}'));
  await mkdir(at("c"));
  const list = await cache.list({ directory });
  // A folder is none of its files, as in a page.
  assert.equal(list.length, 3);
  const unreadable = list.filter((one) => one.url === "");
  assert.equal(unreadable.length, 2);
  assert.ok(unreadable.every(({ kept, complete }) => kept === 0 && !complete));

  // As it is listed, without its query.
  const { url: shown } = list.find((one) => one.url !== "")!;
  assert.equal(shown, `${url}tiny.gguf`);
  assert.equal(await cache.delete(`${url}other.gguf`, { directory }), 0);
  assert.equal(await cache.delete(`${shown}?key=2`, { directory }), 0, "another's");
  assert.equal(await cache.delete(shown, { directory }), 1);
  assert.equal(await cache.delete(url, { directory }), 0);
});

test("options of the cache are checked, and nothing is deleted by a wrong one", async (context) => {
  const { url, directory } = await place(context, { "tiny.gguf": tiny });
  await ask(`${url}tiny.gguf`, { cache: directory });
  for (const options of [{ dir: directory }, directory, null, 5, { directory: "" }, { directory: 5 }] as never[]) {
    await assert.rejects(cache.delete(undefined, options), { code: "InvalidArgument" });
    await assert.rejects(cache.list(options), { code: "InvalidArgument" });
  }
  assert.equal((await cache.list({ directory })).length, 1);
});
