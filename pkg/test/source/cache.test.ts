/** What a load keeps of what servers sent, and what it still asks for. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { before, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { cache, type LoadOptions, load } from "ternlight";
import { openDirectory } from "../../src/cache/disk.ts";
import { Entry } from "../../src/cache/entry.ts";
import { openCached, type Trust } from "../../src/cache/open.ts";
import type { Store } from "../../src/cache/store.ts";
import { folderOf, goldenFile } from "./support/models.ts";
import { type Asked, type Behaviour, serveFiles } from "./support/server.ts";
import type { Files } from "./support/split.ts";

const MIB = 1 << 20;
/** Of the cache. */
const CHUNK = 512 << 10;
const demo = fileURLToPath(new URL("../../models/ternlight-demo/", import.meta.url));
const WEIGHTS = "model.safetensors";

let files: Files;
let tiny: Uint8Array<ArrayBuffer>;
let weights: Uint8Array<ArrayBuffer>;

before(async () => {
  const names = (await readdir(demo)).filter((name) => /\.(json|safetensors)$/.test(name));
  const entries = names.map(async (name) => [name, new Uint8Array(await readFile(path.join(demo, name)))] as const);
  files = Object.fromEntries(await Promise.all(entries));
  weights = files[WEIGHTS]!;
  assert.ok(weights.length > 3 * MIB, "several chunks");
  tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
});

const sha256 = (bytes: Uint8Array, encoding: "hex" | "base64" = "hex") =>
  createHash("sha256").update(bytes).digest(encoding);

/** Every file is called by what is in it. */
const named = (all: Files): Behaviour => ({
  announce: (headers, path) => (all[path] ? { ...headers, etag: `"${sha256(all[path]!).slice(0, 8)}"` } : headers),
});

async function place(context: TestContext, all: Files = files, behaviour: Behaviour = named(all)) {
  const server = await serveFiles(context, all, behaviour);
  return { ...server, directory: await folderOf(context, {}) };
}

/** What the model says, and what the load had to say. */
async function ask(source: string, options: LoadOptions): Promise<{ logits: Float32Array[]; warnings: string[] }> {
  const model = await load(source, { threads: 1, ...options });
  try {
    return { logits: await model.logits([1, 5, 9, 2], { all: true }), warnings: model.info.warnings };
  } finally {
    await model.close();
  }
}

const about = (asked: Asked[], path: string) => asked.filter((one) => one.path === path);
const sentOf = (asked: Asked[]) => asked.reduce((sum, { sent }) => sum + sent, 0);

test("the second load asks whether the files are still the same, and for nothing else", async (context) => {
  const { url, asked, directory } = await place(context);
  const first = await ask(url, { cache: directory });
  assert.ok(sentOf(about(asked, WEIGHTS)) <= weights.length, "no byte came twice");
  assert.ok(about(asked, WEIGHTS).length <= 2, "what is short is one request, after the one for its header");
  const list = await cache.list({ directory });
  assert.deepEqual(
    list.map(({ url, size, kept, complete }) => ({ url, size, kept, complete })).sort((a, b) => a.size - b.size),
    Object.entries(files)
      .map(([name, { length: size }]) => ({ url: url + name, size, kept: size, complete: true }))
      .sort((a, b) => a.size - b.size),
  );

  asked.length = 0;
  assert.deepEqual(await ask(url, { cache: directory }), first);
  const found = asked.filter(({ status }) => status !== 404);
  assert.deepEqual(new Set(found.map(({ method }) => method)), new Set(["HEAD"]));
  assert.equal(found.length, Object.keys(files).length, "each file once");
  assert.equal(sentOf(found), 0);

  assert.equal(await cache.delete(`${url}${WEIGHTS}`, { directory }), 1);
  assert.equal(await cache.delete(list.find((one) => one.url.endsWith("/config.json"))!, { directory }), 1);
  assert.equal((await cache.list({ directory })).length, Object.keys(files).length - 2);
  assert.equal(await cache.delete(url, { directory }), Object.keys(files).length - 2);
  assert.deepEqual(await cache.list({ directory }), []);
  assert.equal(await cache.delete(undefined, { directory: path.join(directory, "none") }), 0);
  for (const wrong of ["", "model.gguf", null]) {
    await assert.rejects(cache.delete(wrong as string, { directory }), {
      code: "InvalidArgument",
      message: /is not a URL/,
    });
  }
});

test("a load that was cut off goes on where it was", async (context) => {
  let healthy = false;
  const { announce } = named(files) as Required<Behaviour>;
  const { url, asked, directory } = await place(context, files, {
    announce,
    answer(request, response) {
      // Beyond its second megabyte the file cannot be had.
      const from = Number(/=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (healthy || from < CHUNK || !request.url!.endsWith(WEIGHTS)) return false;
      response.writeHead(206, {
        "content-range": `bytes ${from}-${weights.length - 1}/${weights.length}`,
        etag: announce({}, WEIGHTS).etag!,
      });
      response.write(weights.subarray(from, 2 * MIB + 1000), () => setTimeout(() => response.destroy(), 20));
      return true;
    },
  });
  await assert.rejects(ask(url, { cache: directory }), { name: "EngineError" });
  const part = (await cache.list({ directory })).find((one) => one.url.endsWith(WEIGHTS))!;
  assert.deepEqual([part.size, part.kept, part.complete], [weights.length, 2 * MIB, false]);

  healthy = true;
  asked.length = 0;
  const { warnings } = await ask(url, { cache: directory });
  assert.deepEqual(warnings, []);
  assert.deepEqual(
    about(asked, WEIGHTS).map(({ method, range }) => range ?? method),
    ["HEAD", `bytes=${2 * MIB}-${weights.length - 1}`],
  );
  assert.ok((await cache.list({ directory })).every(({ complete }) => complete));
});

test("an aborted load is taken up again", { timeout: 60_000 }, async (context) => {
  let stuck = true;
  const behaviour = named(files);
  const { url, asked, directory } = await place(context, files, {
    ...behaviour,
    answer(request, response) {
      const from = Number(/=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (!stuck || from < CHUNK) return false;
      const range = `bytes ${from}-${weights.length - 1}/${weights.length}`;
      response.writeHead(206, behaviour.announce!({ "content-range": range }, WEIGHTS));
      response.write(weights.subarray(from, 2 * MIB + 1000));
      return true;
    },
  });
  const control = new AbortController();
  const slow = ask(url, { cache: directory, signal: control.signal });
  slow.catch(() => {});
  // The worker ends at once, with whatever it was about to write.
  const kept = async () => (await cache.list({ directory })).find((one) => one.url.endsWith(WEIGHTS))?.kept;
  while ((await kept()) !== 2 * MIB) await wait(20);
  control.abort();
  await assert.rejects(slow, { name: "AbortError" });

  stuck = false;
  asked.length = 0;
  await ask(url, { cache: directory });
  assert.deepEqual(
    about(asked, WEIGHTS).map(({ method, range }) => range ?? method),
    ["HEAD", `bytes=${2 * MIB}-${weights.length - 1}`],
  );
});

test("a damaged chunk is found, and it alone is fetched again", async (context) => {
  const { url, asked, directory } = await place(context);
  const integrity = Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, sha256(bytes)]));
  const { logits } = await ask(url, { cache: directory, integrity });
  const { id } = (await cache.list({ directory })).find((one) => one.url.endsWith(WEIGHTS))!;
  const file = path.join(directory, id);
  const bytes = await readFile(file);
  bytes[bytes.length - weights.length + 2 * MIB + 5]! ^= 1;
  await writeFile(file, bytes);
  for (const ranges of [[`bytes=${2 * MIB}-${2 * MIB + CHUNK - 1}`], []]) {
    asked.length = 0;
    assert.deepEqual((await ask(url, { cache: directory, verify: "always", integrity })).logits, logits);
    const found = about(asked, WEIGHTS).filter(({ range }) => range);
    assert.deepEqual(
      found.map(({ range }) => range),
      ranges,
    );
  }
});

test("a file must be what its hash says", async (context) => {
  const { url, directory } = await place(context, { "tiny.gguf": tiny });
  const source = `${url}tiny.gguf`;
  for (const integrity of [
    sha256(tiny),
    sha256(tiny).toUpperCase(),
    `sha256-${sha256(tiny, "base64")}`,
    { "tiny.gguf": sha256(tiny) },
  ]) {
    await ask(source, { cache: directory, integrity });
    await ask(source, { cache: false, integrity });
  }
  const other = sha256(weights);
  for (const options of [{ cache: directory }, { cache: false }]) {
    await assert.rejects(ask(source, { ...options, integrity: other }), {
      code: "IntegrityMismatch",
      message: /tiny\.gguf is not the file that was asked for/,
    });
  }
  assert.deepEqual(await cache.list({ directory }), [], "what is wrong is not kept");
  await assert.rejects(ask(source, { cache: false, integrity: { "other.gguf": other } }), {
    code: "InvalidArgument",
    message: /integrity has no hash of tiny\.gguf/,
  });
  await assert.rejects(ask(demo, { integrity: sha256(weights) }), {
    code: "InvalidArgument",
    message: /integrity is one hash, and the model has several files/,
  });
  for (const options of [
    { integrity: "abc" },
    { integrity: { a: 1 } },
    { cache: 7 },
    { verify: true },
    { connections: 0 },
  ]) {
    await assert.rejects(load(source, options as never), { code: "InvalidArgument" });
  }
  // What is wrong in the cache only, and was never asked about, is fetched again.
  await ask(source, { cache: directory });
  const [{ id } = { id: "" }] = await cache.list({ directory });
  const bytes = await readFile(path.join(directory, id));
  bytes[bytes.length - 100]! ^= 1;
  await writeFile(path.join(directory, id), bytes);
  await ask(source, { cache: directory, integrity: sha256(tiny) });
});

test("loads at the same time keep one file", async (context) => {
  const { url, directory } = await place(context);
  const all = await Promise.all([0, 1, 2].map(() => ask(url, { cache: directory })));
  for (const one of all) assert.deepEqual(one, all[0]);
  assert.equal((await cache.list({ directory })).length, Object.keys(files).length);
  assert.deepEqual(await ask(url, { cache: directory, verify: "always" }), all[0]);
});

test("a file that changes begins anew, even while it is read", async (context) => {
  let version = 1;
  let changing = false;
  const { url, asked, directory } = await place(context, files, {
    announce(headers, path) {
      if (changing && path === WEIGHTS && headers["content-range"]?.startsWith("bytes 524288-")) {
        changing = false;
        version++;
      }
      return { ...headers, etag: `W/"${version}"` };
    },
  });
  await ask(url, { cache: directory });
  version++;
  asked.length = 0;
  await ask(url, { cache: directory });
  assert.equal(sentOf(about(asked, WEIGHTS)), weights.length);
  assert.equal((await cache.list({ directory })).length, Object.keys(files).length, "the old ones are gone");

  await cache.delete(undefined, { directory });
  changing = true;
  await ask(url, { cache: directory });
  assert.equal(changing, false);
  assert.ok((await cache.list({ directory })).every(({ complete }) => complete));
});

test("what a server does not name is not kept, and without a server what is kept is taken", async (context) => {
  const unnamed = await place(context, { "tiny.gguf": tiny }, {});
  const source = `${unnamed.url}tiny.gguf`;
  await ask(source, { cache: unnamed.directory });
  assert.deepEqual(await cache.list({ directory: unnamed.directory }), []);

  let away = false;
  const behaviour: Behaviour = {
    announce: (headers) => ({ ...headers, "last-modified": "Sat, 21 Nov 2026 10:00:00 GMT" }),
    answer(request) {
      if (away) request.socket.destroy();
      return away;
    },
  };
  const { url, directory } = await place(context, { "tiny.gguf": tiny }, behaviour);
  const { logits } = await ask(`${url}tiny.gguf`, { cache: directory });
  away = true;
  const offline = await ask(`${url}tiny.gguf`, { cache: directory });
  assert.deepEqual(offline.logits, logits);
  assert.match(offline.warnings.join(), /tiny\.gguf is the one that was kept/);
  await assert.rejects(ask(`${url}tiny.gguf`, { cache: false }), { code: "Network" });
});

test("what cannot be read any more takes nobody's room", async (context) => {
  const directory = await folderOf(context, { "one-file": new TextEncoder().encode("another format") });
  const store: Store = {
    ...(await openDirectory(directory)),
    room: async () => ((await readdir(directory)).length > 0 ? 0 : 1e9),
  };
  const warnings: string[] = [];
  const identity = { url: "https://example.com/", size: 1000, validator: "1", access: "" };
  const open = () => Entry.open(store, "one-file", identity, (message) => warnings.push(message));
  const entry = await open();
  await entry.keep(0, weights.subarray(0, 1000));
  await entry.close();
  assert.deepEqual(warnings, []);
  assert.ok((await open()).complete);
});

test("the guide's example", async (context) => {
  const guide = await readFile(new URL("../../../docs/guide/loading.md", import.meta.url), "utf8");
  const [, example = ""] = /^```js\n(import \{ cache.*?)^```/ms.exec(guide) ?? [];
  const { url, directory } = await place(context, { "model.gguf": tiny });
  process.env.XDG_CACHE_HOME = directory;
  const program = example
    .replace(/^import (.*) from "ternlight";/, "const $1 = ternlight;")
    .replaceAll("https://example.com/", url)
    .replace("8c1f…", sha256(tiny));
  const lines: string[] = [];
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
  const console = { log: (line: string) => lines.push(line) };
  await new AsyncFunction("ternlight", "console", `${program}; await model.close();`)({ cache, load }, console);
  assert.deepEqual(lines, [`${url}model.gguf: ${tiny.length} of ${tiny.length} bytes`]);
  // What was measured of the kernels is of no address.
  const names = await readdir(path.join(directory, "ternlight"));
  assert.deepEqual(
    names.filter((name) => !name.startsWith("tuning-")),
    [],
  );
});

test("a directory that cannot be written to costs a warning, not the load", async (context) => {
  const { url } = await place(context, { "tiny.gguf": tiny });
  const file = path.join(await folderOf(context, { file: new Uint8Array(1) }), "file");
  const { warnings } = await ask(`${url}tiny.gguf`, { cache: path.join(file, "below") });
  assert.match(warnings.join(), /tiny\.gguf is not kept: /);
});

/** A server whose `HEAD` is answered by `head` where it says so, and files kept of it through `fresh` or not. */
async function asked(context: TestContext, head: (response: ServerResponse) => boolean, headers: () => object) {
  let reach = Infinity;
  const server = await place(
    context,
    { file: weights },
    {
      announce: (own) => ({ ...own, ...headers() }),
      answer(request, response) {
        const from = Number(/=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
        if (request.method === "HEAD") return head(response);
        if (from < reach) return false;
        response.destroy();
        return true;
      },
    },
  );
  const store = await openDirectory(server.directory);
  const warnings: string[] = [];
  const read = async (end: number, trust: Trust = "announced") => {
    const http = { backoff: 5, patience: 500 };
    const warn = (message: string) => void warnings.push(message);
    const spec = { kind: "url" as const, url: `${server.url}file`, headers: [] };
    server.asked.length = 0;
    const source = await openCached(spec, { store, verify: false, http, trust, warn });
    const bytes = await source.read(0, end).finally(() => source.close());
    assert.ok(Buffer.from(weights.subarray(0, end)).equals(bytes));
    return sentOf(server.asked);
  };
  return { ...server, read, warnings, cut: (at: number) => (reach = at) };
}

test("a server that does not answer HEAD goes on and is asked for what is new", {
  timeout: 60_000,
}, async (context) => {
  for (const head of [
    (response: ServerResponse) => !!response.writeHead(501).end(),
    (response: ServerResponse) => !!response.writeHead(503).end(),
    (response: ServerResponse) => !!response.destroy(),
    () => true,
  ]) {
    let etag = '"1"';
    const { read, warnings, cut, asked: requests } = await asked(context, head, () => ({ etag }));
    await read(2 * MIB);
    assert.equal(await read(weights.length), weights.length - 2 * MIB + CHUNK, "what was kept did not come again");
    assert.equal(requests.filter(({ method }) => method === "HEAD").length, 1);
    assert.equal(await read(weights.length), CHUNK);
    assert.deepEqual(warnings, []);
    cut(0);
    assert.equal(await read(weights.length), 0);
    assert.match(warnings.splice(0).join(), /file is the one that was kept/);
    assert.ok(requests.length <= 1 + 2, "no more than HEAD and two tries");
    cut(Infinity);
    etag = '"2"';
    assert.equal(await read(weights.length), weights.length);
    assert.deepEqual(warnings, []);
  }
});

test("what HEAD says is old", async (context) => {
  let etag = '"1"';
  const old = (response: ServerResponse) =>
    !!response.writeHead(200, { etag: '"1"', "content-length": weights.length }).end();
  const { read } = await asked(context, old, () => ({ etag }));
  await read(2 * MIB);
  etag = '"2"';
  await assert.rejects(read(weights.length), { code: "SourceChanged" });
  assert.equal(await read(weights.length, "sent"), weights.length);
});

test("HEAD without a length, and with one that is not the file's", async (context) => {
  const etag = '"1"';
  for (const headers of [{ etag }, { etag, "content-encoding": "gzip", "content-length": "1000" }]) {
    const { read } = await asked(
      context,
      (response) => !!response.writeHead(200, headers).end(),
      () => ({ etag }),
    );
    await read(2 * MIB);
    assert.equal(await read(weights.length), weights.length - 2 * MIB + CHUNK);
    assert.equal(await read(weights.length), 0, "whole, and the same");
  }
  const { read, asked: requests } = await asked(
    context,
    // As servers do that encode what is asked for in no parts.
    (response) => {
      const { range, "accept-encoding": encoding } = response.req.headers;
      assert.deepEqual([range, encoding], ["bytes=0-", "identity"]);
      response.writeHead(206, { etag, "content-range": `bytes 0-${weights.length - 1}/${weights.length}` }).end();
      return true;
    },
    () => ({ etag }),
  );
  await read(2 * MIB);
  assert.equal(await read(weights.length), weights.length - 2 * MIB);
  assert.equal(requests.length, 2);
});
