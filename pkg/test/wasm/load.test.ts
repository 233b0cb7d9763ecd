import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import flavours from "../../flavours.json" with { type: "json" };
import { fetchFile } from "../../src/platform/node.ts";
import { builds } from "../../src/wasm/builds.ts";
import { compile, type GlueHost, instantiate } from "../../src/wasm/load.ts";

const file = (name: string) => new URL(`../../dist/${name}`, import.meta.url);
const url = file("single-simd128.wasm");
const host: GlueHost = { startWorkers: () => Promise.reject(new Error("no pool was asked for")) };
const MB = 1 << 20;

test("wasm compiles whatever type the server gives it", async () => {
  const bytes = await readFile(url);
  for (const type of ["application/wasm", "application/octet-stream", "application/wasm; charset=utf-8", ""]) {
    const headers: HeadersInit = type ? { "content-type": type } : {};
    assert.ok((await compile(url, async () => new Response(bytes, { headers }))) instanceof WebAssembly.Module, type);
  }
  assert.ok((await compile(url, fetchFile)) instanceof WebAssembly.Module);
});

test("a server's answer is compiled while it arrives, a file never: ending its worker would crash Node", async (context) => {
  const stream = context.mock.method(WebAssembly, "compileStreaming");
  await compile(url, fetchFile);
  assert.equal(stream.mock.callCount(), 0);
  const headers = { "content-type": "application/wasm" };
  await compile(url, async () => new Response(await readFile(url), { headers }));
  assert.equal(stream.mock.callCount(), 1);
});

test("what cannot be compiled says what came instead", async () => {
  const html = () => new Response("<!doctype html>", { headers: { "content-type": "text/html" } });
  for (const [answer, code, message] of [
    [async () => html(), "WorkerFailed", /served as text\/html, expected application\/wasm/],
    [async () => new Response("", { status: 404 }), "NotFound", /HTTP 404/],
    [async () => new Response("", { status: 503 }), "Network", /HTTP 503/],
    [() => Promise.reject(new TypeError("refused")), "Network", /refused/],
    [() => fetchFile(file("nothing.wasm")), "Network", /ENOENT/],
  ] as [() => Promise<Response>, string, RegExp][]) {
    await assert.rejects(compile(url, answer), { name: "EngineError", code, message, detail: { file: url.href } });
  }
});

for (const { name, file: wasm, threads } of flavours) {
  test(`${name}: one module serves two instances that share nothing`, async () => {
    const build = builds[name]!;
    const module = await compile(file(wasm), fetchFile);
    const [one, other] = [16 * MB, 64 * MB].map((maximumBytes) => instantiate(build, module, { maximumBytes, host }));
    assert.notEqual(one!.memory, other!.memory);
    // The glue answers a second call with the instance that is there already: each has its own.
    assert.equal(one!.glue.initSync({ module }).memory, one!.memory);
    assert.equal(other!.glue.initSync({ module }).memory, other!.memory);

    const before = other!.memory.buffer.byteLength;
    one!.memory.grow(16);
    assert.equal(other!.memory.buffer.byteLength, before);
    if (threads) {
      assert.throws(() => one!.memory.grow(16 * 16), RangeError, "16 MB were the most that the first may hold");
      other!.memory.grow(16 * 16);
    }
  });
}

test("memory that the system refuses is a typed error", async () => {
  const build = { ...builds["threads-simd128"]!, initialPages: 1 << 20 };
  const module = await compile(file("threads-simd128.wasm"), fetchFile);
  assert.throws(() => instantiate(build, module, { maximumBytes: MB, host }), { code: "OutOfMemory" });
});
