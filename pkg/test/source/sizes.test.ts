/** Sizes that servers announce and bodies that they send: what is too long is refused before it is held. */

import assert from "node:assert/strict";
import { createReadStream, createWriteStream } from "node:fs";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { before, type TestContext, test } from "node:test";
import { createGzip } from "node:zlib";
import { inspect, load } from "ternlight";
import { openDirectory } from "../../src/cache/disk.ts";
import { Entry } from "../../src/cache/entry.ts";
import { openCached } from "../../src/cache/open.ts";
import { ALIGNMENT_BYTES, HEADER_BYTES } from "../../src/source/limits.ts";
import { folderOf, goldenFile, goldenFolder } from "./support/models.ts";
import { type Behaviour, serveFiles } from "./support/server.ts";
import { type Files, json } from "./support/split.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
let tiny: Uint8Array<ArrayBuffer>;
let folder: Files;

before(async () => {
  tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  folder = await goldenFolder("models/bitnet_packed");
});

/** Announces this size for every range. */
const claiming = (size: number): Behaviour => ({
  announce(headers) {
    const range = headers["content-range"]?.replace(/\/.*/, `/${size}`);
    return { ...headers, etag: '"1"', ...(range && { "content-range": range }) };
  },
});

/** The most that `work` has held more than before, at least by the samples of a timer. */
async function peakOf(work: () => Promise<unknown>): Promise<number> {
  const { gc } = globalThis as { gc?: () => void };
  gc?.();
  const before = process.memoryUsage.rss();
  let most = before;
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 5);
  try {
    await work();
  } finally {
    clearInterval(timer);
    most = Math.max(most, process.memoryUsage.rss());
  }
  return most - before;
}

const tooLarge = (file: string) => ({
  name: "EngineError",
  code: "TooLarge",
  message: new RegExp(`${file.replaceAll(".", "\\.")} is too long: expected at most \\d+ bytes, found \\d+`),
});

test("a size that no model has is refused at once, cached or not", async (context) => {
  for (const size of [2 ** 40 + 1, 2 ** 44, 2 ** 47, 2 ** 60, 1e20]) {
    const { url } = await serveFiles(context, { "tiny.gguf": tiny }, claiming(size));
    const directory = await folderOf(context, {});
    for (const options of [{ cache: directory }, { cache: false }]) {
      const begun = performance.now();
      await assert.rejects(load(`${url}tiny.gguf`, { threads: 1, ...options }), tooLarge("tiny.gguf"));
      assert.ok(performance.now() - begun < 10_000);
    }
    await assert.rejects(inspect(`${url}tiny.gguf`), tooLarge("tiny.gguf"));
    assert.deepEqual(await readdir(directory), [], "nothing is kept");
  }
});

test("bookkeeping takes no room for what has not arrived", async (context) => {
  const size = 2 ** 40;
  const { url } = await serveFiles(context, { file: tiny }, claiming(size));
  const directory = await folderOf(context, {});
  const store = { ...(await openDirectory(directory)), room: async () => null };
  const spec = { kind: "url" as const, url: `${url}file`, headers: [] };
  const work = async () => {
    const source = await openCached(spec, { store, verify: false, http: {}, trust: "announced", warn() {} });
    assert.equal(source.size, size);
    await source.read(0, 100).catch(() => {});
    const pieces = source.stream(0, size)[Symbol.asyncIterator]();
    await pieces.next().catch(() => {});
    await pieces.return?.();
    await source.close();

    const entry = await Entry.open(store, "entry", { url, size, validator: "1", access: "" }, assert.fail);
    await entry.keep(3, tiny.subarray(0, 512 << 10));
    assert.equal(entry.complete, false);
    await entry.close();
    const again = await Entry.open(store, "entry", { url, size, validator: "1", access: "" }, assert.fail);
    assert.deepEqual([again.has(3), again.has(4)], [true, false]);
    await again.close();
  };
  // The first time, code is compiled and the heap grows.
  const taken = Math.min(await peakOf(work), await peakOf(work));
  assert.ok(taken < 24 * MIB, `${taken} bytes`);
  for (const name of await readdir(directory)) {
    const { blocks } = await stat(path.join(directory, name));
    assert.ok(512 * blocks < 2 * MIB, `${blocks} blocks of storage`);
  }
});

/** So many spaces, compressed. */
async function compressed(context: TestContext, size: number): Promise<string> {
  const file = path.join(await folderOf(context, {}), "bomb.gz");
  const spaces = function* () {
    const piece = new Uint8Array(MIB).fill(0x20);
    for (let at = 0; at < size; at += MIB) yield piece;
  };
  await pipeline(Readable.from(spaces()), createGzip({ level: 1 }), createWriteStream(file));
  return file;
}

/** A folder's server that answers with another file, encoded, in the place of one. */
async function bomb(context: TestContext, file: string, place: string) {
  const { size: length } = await stat(file);
  const send = (response: ServerResponse) => {
    response.writeHead(200, { "content-encoding": "gzip", "content-length": String(length) });
    createReadStream(file).pipe(response);
    response.on("error", () => {});
  };
  const files = { ...folder, "weights.gguf": tiny, "model.safetensors.index.json": json({}) };
  return serveFiles(context, files, {
    answer(request, response) {
      if (request.url !== `/${place}`) return false;
      send(response);
      return true;
    },
  });
}

test("a compressed answer is cut off where it is longer than such a file", { timeout: 120_000 }, async (context) => {
  const file = await compressed(context, GIB);
  for (const [place, source] of [
    ["tokenizer.json", ""],
    ["config.json", ""],
    ["generation_config.json", ""],
    ["chat_template.jinja", ""],
    ["weights.gguf", "weights.gguf"],
  ] as const) {
    const { url } = await bomb(context, file, place);
    const taken = await peakOf(() => assert.rejects(inspect(url + source), tooLarge(place)));
    assert.ok(taken < 400 * MIB, `${place}: ${taken} bytes`);
  }
});

test("an answer that is longer than announced, and one that announces too much", async (context) => {
  const long: Behaviour = {
    answer(_, response) {
      response.socket!.end(`HTTP/1.1 200 OK\r\ncontent-length: ${5 * GIB}\r\n\r\nGGUF`);
      return true;
    },
  };
  const { url } = await serveFiles(context, {}, long);
  await assert.rejects(inspect(`${url}a.gguf`), tooLarge("a.gguf"));
});

test("an adapter's config has a limit, wherever it lies", async (context) => {
  const directory = await folderOf(context, {});
  await writeFile(path.join(directory, "adapter_config.json"), new Uint8Array(3 * MIB).fill(0x20));
  const { "model.safetensors": weights } = folder;
  await writeFile(path.join(directory, "adapter_model.safetensors"), weights!);
  const model = await load(new URL("../../models/ternlight-demo/", import.meta.url), { threads: 1 });
  try {
    await assert.rejects(model.loadAdapter(directory), tooLarge("adapter_config.json"));
  } finally {
    await model.close();
  }
});

test("a Blob that Node cannot read is refused, and does not end the process", async () => {
  const piece = new Blob([new Uint8Array(2 ** 20)]);
  const long = new File(
    Array.from({ length: 4096 }, () => piece),
    "long.gguf",
  );
  await assert.rejects(load(long), {
    code: "TooLarge",
    detail: { file: "long.gguf", expected: "at most 4294967295 bytes", found: "4294967296" },
  });
});

test("headers have the engine's limits", async () => {
  const rust = await readFile(new URL("../../../src/formats/limits.rs", import.meta.url), "utf8");
  assert.match(rust, new RegExp(`HEADER: u64 = ${HEADER_BYTES / MIB} << 20;`));
  assert.match(rust, new RegExp(`ALIGNMENT: u64 = ${ALIGNMENT_BYTES / MIB} << 20;`));
});
