/** Servers as they are: how much is asked of them, and what becomes of those that fail. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { before, type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { inspect, load } from "ternlight";
import { HttpSource } from "../../src/source/http.ts";
import type { Source } from "../../src/source/source.ts";
import type { EngineError } from "../../src/types/errors.ts";
import { goldenFile, goldenFolder, goldenPath, logitsOf } from "./support/models.ts";
import { type Behaviour, serveFiles } from "./support/server.ts";
import { type Files, json, shardSafetensors, splitGguf } from "./support/split.ts";

const KB = 1 << 10;
const SIZE = 2500 * KB + 17;
const bytes = Uint8Array.from({ length: SIZE }, (_, i) => (i * 2654435761) >>> 24);
let whole: Uint8Array<ArrayBuffer>;
let folder: Files;

before(async () => {
  whole = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  folder = await goldenFolder("models/bitnet_packed");
});

async function collect(source: Source, offset: number, length: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source.stream(offset, length)) pieces.push(piece.slice());
  return Buffer.concat(pieces);
}

/** Of which the server says this of itself, and of what is asked beyond the beginning that. */
async function changing(
  context: TestContext,
  first: Record<string, string>,
  later: Record<string, string>,
  body = bytes,
) {
  const { url } = await serveFiles(
    context,
    { file: bytes },
    {
      announce: (headers) => ({ ...headers, ...first }),
      answer(request, response) {
        if (request.headers.range?.startsWith("bytes=0-")) return false;
        response.writeHead(200, later).end(body);
        return true;
      },
    },
  );
  return collect(await openAt(`${url}file`), 0, SIZE);
}

const openAt = async (url: string) =>
  (await HttpSource.open({ kind: "url", url, headers: [] }, { backoff: 10 })).source;

async function fails(work: Promise<unknown>, code: string, message: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    const { name, code: found, message: text } = error as EngineError;
    assert.deepEqual({ name, code: found }, { name: "EngineError", code }, text);
    assert.match(text, message);
    return true;
  });
}

test("inspect reads headers by range, each once", async (context) => {
  const parts = splitGguf(whole, "tiny", 3);
  const { files, weightMap } = shardSafetensors(folder["model.safetensors"]!, 3);
  const { "model.safetensors": _, ...side } = folder;
  const sharded = { ...side, ...files, "model.safetensors.index.json": json({ weight_map: weightMap }) };
  const big = { "big.gguf": Buffer.concat([whole, new Uint8Array(4 << 20)]) as Uint8Array<ArrayBuffer> };
  for (const [name, all, source, requests, most] of [
    ["one GGUF", big, "big.gguf", 1, 256 * KB],
    ["three parts", parts, "tiny-00002-of-00003.gguf", 3, 3 * 256 * KB],
    // Five files beside the weights, the index and the single file that might be there.
    ["a folder", folder, "", 7, 512 * KB],
    ["shards", sharded, "", 7 + 3, 3 * 256 * KB + 64 * KB],
    ["shards by their index", sharded, "model.safetensors.index.json", 6 + 3, 3 * 256 * KB + 64 * KB],
  ] as const) {
    const { url, asked } = await serveFiles(context, all);
    const { config } = await inspect(url + source);
    assert.ok(config.layers > 0);
    assert.equal(asked.length, requests, `${name}: ${asked.map(({ path }) => path).join()}`);
    assert.ok(
      asked.every(({ range, status }) => range && (status === 206 || status === 404)),
      name,
    );
    assert.equal(new Set(asked.map(({ path }) => path)).size, requests, `${name}: each once`);
    assert.ok(asked.reduce((sum, { sent }) => sum + sent, 0) <= most, name);
  }
});

test("a load asks for the header, for rows to probe, and for the rest", async (context) => {
  const i2s = await goldenFile("gguf/bitnet_packed.b158.I2_S.gguf");
  const { url, asked } = await serveFiles(context, { "a.gguf": whole, "b.gguf": i2s });
  await logitsOf(`${url}b.gguf`);
  const sent = () => asked.reduce((sum, entry) => sum + entry.sent, 0);
  assert.ok(
    asked.length <= 4,
    `which interleave it is, two tensors' rows tell: ${asked.map(({ range }) => range).join()}`,
  );
  assert.ok(sent() <= 1.25 * i2s.length, `${sent()} of ${i2s.length}: two tensors at most came twice`);

  asked.length = 0;
  await logitsOf(`${url}a.gguf`);
  assert.ok(asked.length <= 4, `neighbours are one request: ${asked.map(({ range }) => range).join()}`);
  assert.ok(asked.every(({ status }) => status === 206));
});

test("a server without ranges is asked once", async (context) => {
  const { url, asked } = await serveFiles(context, { "a.gguf": whole }, { noRanges: true });
  assert.deepEqual(await logitsOf(`${url}a.gguf`), await logitsOf(goldenPath("gguf/llama_bitlinear.TQ2_0.gguf")));
  assert.deepEqual(
    asked.map(({ status, sent }) => ({ status, sent })),
    [{ status: 200, sent: whole.length }],
  );
});

test("a dropped connection is taken up where it was", async (context) => {
  const { url, asked } = await serveFiles(context, { file: bytes }, { cut: { after: 700 * KB } });
  const source = await openAt(`${url}file`);
  assert.equal(source.size, SIZE);
  const [from, length] = [100, SIZE - 200];
  assert.deepEqual(await collect(source, from, length), Buffer.from(bytes.subarray(from, from + length)));
  const starts = asked.map(({ range }) => Number(/=(\d+)/.exec(range!)?.[1]));
  assert.deepEqual(
    starts,
    [0, 256, 956, 1656, 2356].map((kb) => kb * KB),
  );
});

test("a slow server is asked for several parts at once, a fast one for one", async (context) => {
  const long = new Uint8Array(21 << 20).map((_, i) => (i * 2654435761) >>> 23);
  for (const [connections, enough, requests] of [
    [3, Infinity, 1 + 17],
    [3, 0, 1 + 2],
    [1, Infinity, 1 + 1],
  ] as const) {
    const { url, asked } = await serveFiles(context, { file: long });
    const { source } = await HttpSource.open({ kind: "url", url: `${url}file`, headers: [] }, { connections, enough });
    assert.deepEqual(await collect(source, 1000, long.length - 2000), Buffer.from(long.subarray(1000, -1000)));
    assert.equal(asked.length, requests);
    assert.ok(asked.reduce((sum, { sent }) => sum + sent, 0) <= long.length, "no byte twice");
    if (requests < 4) continue;
    // Towards the end they are shorter, down to half a megabyte: the last bytes of all come last.
    const ranges = asked.slice(1).map(({ range }) => {
      const [, from, to] = /=(\d+)-(\d+)/.exec(range!)!;
      return { from: Number(from), length: Number(to) + 1 - Number(from) };
    });
    // Several ask at once, in any order.
    const lengths = ranges.sort((a, b) => a.from - b.from).map(({ length }) => length);
    const last = lengths.pop()!;
    assert.deepEqual(
      lengths,
      lengths.toSorted((a, b) => b - a),
    );
    assert.deepEqual([lengths[0], lengths.at(-1)], [4 << 20, 512 << 10]);
    assert.ok(last <= 512 << 10);
  }
});

test("a first request that drops costs nothing but another", async (context) => {
  const { url, asked } = await serveFiles(context, { file: bytes }, { cut: { after: 10 * KB, times: 1 } });
  assert.deepEqual(await collect(await openAt(`${url}file`), 0, SIZE), Buffer.from(bytes));
  assert.deepEqual(
    asked.map(({ range }) => range),
    ["bytes=0-262143", `bytes=10240-${SIZE - 1}`],
  );
});

test("tries have an end", async (context) => {
  const { url, asked } = await serveFiles(context, { file: bytes }, { cut: { after: 1 * KB } });
  const source = await openAt(`${url}file`);
  await fails(collect(source, 0, SIZE), "Network", /file: /);
  assert.equal(asked.length, 1 + 4);

  const busy = await serveFiles(context, { file: bytes }, refuseAfterFirst(503));
  await fails(
    openAt(`${busy.url}file`).then((source) => collect(source, 0, SIZE)),
    "Network",
    /answered 503/,
  );
  assert.equal(busy.asked.length, 1 + 4);
  const forbidden = await serveFiles(context, { file: bytes }, refuseAfterFirst(403));
  await fails(
    openAt(`${forbidden.url}file`).then((source) => collect(source, 0, SIZE)),
    "Network",
    /answered 403/,
  );
  assert.equal(forbidden.asked.length, 2);
});

function refuseAfterFirst(status: number): Behaviour {
  return {
    answer(request, response) {
      if (request.headers.range?.startsWith("bytes=0-")) return false;
      response.writeHead(status).end();
      return true;
    },
  };
}

test("an abort ends the waiting for another try", async (context) => {
  const { url } = await serveFiles(context, { file: bytes }, { cut: { after: 1 * KB } });
  const source = await openAt(`${url}file`);
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 100);
  await assert.rejects(source.read(0, SIZE, { signal: controller.signal }), { name: "AbortError" });
});

test("lengths and ranges that are not true", async (context) => {
  const announced = async (change: (headers: Record<string, string>) => Record<string, string>, noRanges = false) => {
    const { url } = await serveFiles(context, { "a.gguf": whole }, { announce: change, noRanges });
    return `${url}a.gguf`;
  };
  const range = (text: string) => (headers: Record<string, string>) =>
    headers["content-range"]
      ? { ...headers, "content-range": headers["content-range"].replace(/\/.*/, text) }
      : headers;

  const longer = await announced(range(`/${whole.length + 1000}`));
  await inspect(longer);
  const shorter = await announced(range("/300000"));
  await fails(inspect(shorter), "Truncated", /the file ends inside the tensor/);
  const shifted = await announced((headers) => ({ ...headers, "content-range": `bytes 5-260/${whole.length}` }));
  await fails(inspect(shifted), "Network", /asked for byte 0, the server sent bytes 5-260/);
  const nonsense = await announced((headers) => ({ ...headers, "content-range": "bytes" }));
  await fails(inspect(nonsense), "Network", /asked for byte 0/);

  // Another origin's page does not see Content-Range: a HEAD request tells the size.
  const hidden = await announced(({ "content-range": _, ...headers }) => headers);
  assert.equal((await openAt(hidden)).size, whole.length);
  const unknown = await announced(range("/*"));
  assert.equal((await openAt(unknown)).size, whole.length);

  // Without ranges nothing can be taken up again, only begun again.
  const early = await serveFiles(context, { "a.gguf": whole }, { noRanges: true, cut: { after: 1000 } });
  await fails(inspect(`${early.url}a.gguf`), "Network", /a\.gguf: /);
  assert.equal(early.asked.length, 2);
});

test("a file that changes while it is read", async (context) => {
  let version = 0;
  const { url } = await serveFiles(
    context,
    { file: bytes },
    {
      announce: (headers) => ({ ...headers, etag: `"${version++}"` }),
    },
  );
  const source = await openAt(`${url}file`);
  await fails(collect(source, 0, SIZE), "SourceChanged", /has changed on the server/);
});

test("a web page is no model", async (context) => {
  const { url, asked } = await serveFiles(context, folder, { fallback: true });
  await fails(inspect(`${url}missing.gguf`), "NotFound", /missing\.gguf: the server sent a web page \(text\/html\)/);
  await fails(inspect(`${url}elsewhere/`), "NotFound", /has no model\.safetensors .*web page/);
  // What need not be there is not there, as with a 404.
  asked.length = 0;
  const model = await load(url, { threads: 1 });
  assert.equal(model.info.tokenizer?.kind !== undefined, true);
  await model.close();
  assert.ok(asked.some(({ path, status }) => path === "chat_template.jinja" && status === 200));
});

test("an empty file, and one that is not there", async (context) => {
  const { url } = await serveFiles(context, { empty: new Uint8Array() });
  await fails(inspect(`${url}empty`), "BadMagic", /an empty file/);
  await fails(inspect(`${url}none.gguf`), "NotFound", /none\.gguf: the server answered 404/);
  await fails(inspect("http://127.0.0.1:9/x.gguf"), "Network", /x\.gguf: /);
});

test("a whole answer in the middle of a file is looked at as the first one was", async (context) => {
  const page = Buffer.from(`<!doctype html>${"be right back ".repeat(200_000)}`);
  const etag = '"1"';
  const changed = /has changed on the server/;
  await fails(
    changing(context, {}, { "content-length": String(SIZE - 1) }, bytes.subarray(1)),
    "SourceChanged",
    changed,
  );
  await fails(changing(context, { etag }, {}, page), "SourceChanged", changed);
  await fails(changing(context, {}, { "content-type": "text/html" }, page), "NotFound", /sent a web page/);
  const zip = new Uint8Array(gzipSync(bytes));
  const encoded = { "content-encoding": "gzip", "content-length": String(zip.length), etag };
  for (const [first, later, body] of [
    [{ etag }, { "content-length": String(SIZE) }, bytes],
    [{ etag }, { etag }, bytes],
    [{}, {}, bytes],
    [{ etag }, encoded, zip],
  ] as [Record<string, string>, Record<string, string>, Uint8Array<ArrayBuffer>][]) {
    assert.deepEqual(await changing(context, first, later, body), Buffer.from(bytes));
  }
});

test("a folder of a server that forbids what is not there", async (context) => {
  const forbidding = (files: Files) =>
    serveFiles(context, files, {
      answer(request, response) {
        if (Object.hasOwn(files, request.url!.slice(1))) return false;
        response.writeHead(403).end();
        return true;
      },
    });
  const { url } = await forbidding(folder);
  assert.ok((await inspect(url)).config.layers > 0);
  for (const missing of ["model.safetensors", "config.json"]) {
    const { [missing]: _, ...rest } = folder;
    const { url } = await forbidding(rest);
    await fails(inspect(url), "Network", new RegExp(`/${missing.replace(".", "\\.")}: the server answered 403`));
  }
});

test("user and password of an address", async (context) => {
  const seen: (string | undefined)[] = [];
  const { url } = await serveFiles(context, folder, {
    answer(request, response) {
      seen.push(request.headers.authorization);
      if (request.headers.authorization) return false;
      response.writeHead(401).end();
      return true;
    },
  });
  const secret = url.replace("//", "//jo%20e:s3cr\u00e9t@");
  assert.ok((await inspect(secret)).config.layers > 0);
  assert.deepEqual(new Set(seen), new Set([`Basic ${Buffer.from("jo e:s3cr\u00e9t").toString("base64")}`]));
  await fails(inspect(url), "Network", /answered 401/);
  for (const address of [
    `${secret}none.gguf`,
    "http://joe:s3cr\u00e9t@exa mple.com/x",
    "http://joe:s3c/r\u00e9t@a.b/x",
  ]) {
    await assert.rejects(inspect(address), (error) => {
      for (let each = error; each instanceof Error; each = each.cause) {
        assert.doesNotMatch(JSON.stringify([each.message, each, String(each.stack)]), /s3c|r(\u00e9|%C3%A9)t/);
      }
      return true;
    });
  }
});

test("parts of what is stored encoded are of no use", async (context) => {
  const { "config.json": config, ...rest } = folder;
  const { url } = await serveFiles(
    context,
    { ...rest, "config.json": new Uint8Array(gzipSync(config!)) },
    { announce: (headers, path) => ({ ...headers, ...(path === "config.json" && { "content-encoding": "gzip" }) }) },
  );
  await fails(inspect(url), "Network", /config\.json: .*\(gzip\): serve it without Content-Encoding/);
});

test("names that an address escapes", async (context) => {
  const { url } = await serveFiles(context, { "my model.gguf": whole, "100%.gguf": whole });
  const hash = createHash("sha256").update(whole).digest("hex");
  for (const [address, name] of [
    ["my%20model.gguf", "my model.gguf"],
    ["my%20model.gguf", "my%20model.gguf"],
    ["100%25.gguf", "100%.gguf"],
  ] as const) {
    await (await load(url + address, { threads: 1, cache: false, integrity: { [name]: hash } })).close();
  }
  const other = load(`${url}my%20model.gguf`, { threads: 1, cache: false, integrity: { other: hash } });
  await fails(other, "InvalidArgument", /no hash of my model\.gguf/);
});
