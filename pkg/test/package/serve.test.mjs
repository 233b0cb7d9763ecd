import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { serve } from "../../../scripts/serve.mjs";

let folder;
let server;

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  await writeFile(path.join(folder, "index.html"), "<!doctype html>");
  await writeFile(path.join(folder, "ten.wasm"), "0123456789");
  await writeFile(path.join(folder, "empty.json"), "");
  server = await serve({ mounts: { "/": folder, "/again/": folder } });
});

after(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

/** Not by `fetch`, which resolves a path before it asks. */
function get(target, headers = {}, method = "GET") {
  return new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port: server.port, path: target, headers, method };
    request(options, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text) => {
        body += text;
      });
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body }));
    })
      .on("error", reject)
      .end();
  });
}

test("files come with their types and the headers that isolate a page", async () => {
  const index = await get("/");
  assert.equal(index.status, 200);
  assert.equal(index.headers["content-type"], "text/html; charset=utf-8");
  assert.equal(index.headers["cross-origin-opener-policy"], "same-origin");
  assert.equal(index.headers["cross-origin-embedder-policy"], "require-corp");
  const wasm = await get("/again/ten.wasm");
  assert.equal(wasm.headers["content-type"], "application/wasm");
  assert.equal(wasm.body, "0123456789");
  assert.equal((await get("/ten.wasm", { "if-none-match": wasm.headers.etag })).status, 304);
  assert.deepEqual((await get("/ten.wasm", {}, "HEAD")).headers["content-length"], "10");
  assert.equal((await get("/empty.json")).status, 200);
});

test("a range is answered with that range", async () => {
  for (const [range, status, body, contentRange] of [
    ["bytes=2-4", 206, "234", "bytes 2-4/10"],
    ["bytes=7-", 206, "789", "bytes 7-9/10"],
    ["bytes=-2", 206, "89", "bytes 8-9/10"],
    ["bytes=8-99", 206, "89", "bytes 8-9/10"],
    ["bytes=10-", 416, "", "bytes */10"],
    ["bytes=5-4", 416, "", "bytes */10"],
    ["lines=1-2", 200, "0123456789", undefined],
  ]) {
    const answer = await get("/ten.wasm", { range });
    assert.deepEqual(
      [answer.status, answer.body, answer.headers["content-range"]],
      [status, body, contentRange],
      range,
    );
  }
});

test("nothing outside of the folders is served", async () => {
  const outside = path.relative(folder, import.meta.filename);
  for (const target of [`/${outside}`, `/${encodeURIComponent(outside)}`, "/..%2fx", "/%2e%2e/x", "/a%00", "/none"]) {
    assert.equal((await get(target)).status, 404, target);
  }
  assert.equal((await get("/%zz")).status, 400);
  assert.equal((await get("/", {}, "POST")).status, 405);
});

test("a port that is taken makes way for the next", async (context) => {
  const next = await serve({ mounts: { "/": folder }, port: server.port, orNext: true });
  context.after(() => next.close());
  assert.ok(next.port > server.port);
  await assert.rejects(serve({ mounts: { "/": folder }, port: server.port }), { code: "EADDRINUSE" });
});
