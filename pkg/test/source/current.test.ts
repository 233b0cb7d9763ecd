/** What is kept is read while its server is asked whether it is still the same, and given to nobody before the answer. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { before, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { cache, type LoadOptions, load } from "ternlight";
import { folderOf, goldenFile } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import type { Files } from "./support/split.ts";

const FILE = "tiny.gguf";
const demoFile = async (name: string) =>
  new Uint8Array(await readFile(new URL(`../../models/ternlight-demo/${name}`, import.meta.url)));
let tiny: Uint8Array<ArrayBuffer>;
let other: Uint8Array<ArrayBuffer>;

before(async () => {
  tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  other = await goldenFile("gguf/qwen3.Q1_0.gguf");
});

/** A server that has one file and says which version; `holds` has it keep its answers to HEAD, `status` refuses. */
async function place(context: TestContext, files: Files = { [FILE]: tiny }) {
  const state = { version: 1, holds: false, status: 200 };
  const held: (() => void)[] = [];
  const head = (response: ServerResponse, path: string) =>
    response.writeHead(200, { etag: `"${state.version}"`, "content-length": files[path]!.length }).end();
  const { url, asked } = await serveFiles(context, files, {
    announce: (headers) => ({ ...headers, etag: `"${state.version}"` }),
    answer(request, response) {
      if (state.status !== 200) return !!response.writeHead(state.status).end();
      if (!state.holds || request.method !== "HEAD") return false;
      held.push(() => head(response, request.url!.slice(1)));
      return true;
    },
  });
  const directory = await folderOf(context, {});
  const ask = async (options: LoadOptions = {}) => {
    const model = await load(url + FILE, { threads: 1, cache: directory, ...options });
    try {
      return { logits: await model.logits([1, 5, 9, 2], { all: true }), warnings: model.info.warnings };
    } finally {
      await model.close();
    }
  };
  const release = () => {
    state.holds = false;
    for (const answer of held.splice(0)) answer();
  };
  return { url, asked, directory, files, state, held, release, ask };
}

type Asking = Awaited<ReturnType<typeof place>>;

/** Begins a load while the server holds its answer, and looks that all weights are read and nothing but the answer is waited for. */
async function begin({ ask, held, state }: Asking, options: LoadOptions = {}) {
  state.holds = true;
  let [whole, ready, over] = [false, false, false];
  const loading = ask({
    ...options,
    onProgress({ phase, loaded, total }) {
      ready ||= phase === "ready";
      whole ||= total > 0 && loaded === total;
    },
  }).finally(() => (over = true));
  loading.catch(() => {});
  while (!whole && !over) await wait(5);
  await wait(200);
  assert.deepEqual([over, ready, held.length], [false, false, 1]);
  return { loading };
}

test("a copy is read while the server is asked, and the load waits for its answer", async (context) => {
  const server = await place(context);
  const first = await server.ask();
  server.asked.length = 0;
  const { loading } = await begin(server);
  server.release();
  assert.deepEqual(await loading, first);
  assert.deepEqual(
    server.asked.map(({ method, sent }) => [method, sent]),
    [["HEAD", 0]],
  );
});

test("another version on the server is loaded in place of the copy", async (context) => {
  const server = await place(context);
  const { logits } = await server.ask();
  server.state.version++;
  server.files[FILE] = other;
  const newer = await server.ask();
  assert.notDeepEqual(newer.logits, logits);
  assert.deepEqual(newer, await server.ask({ cache: false }));
  assert.deepEqual(
    (await cache.list({ directory: server.directory })).map(({ size, complete }) => [size, complete]),
    [[other.length, true]],
  );
});

test("what an old copy leads to is no error of the new file", async (context) => {
  // The kept one has no tokenizer for a prompt, which the load is to compute.
  const keys = Buffer.from(tiny).toString("latin1").replaceAll("tokenizer.", "something.");
  const mute = new Uint8Array(Buffer.from(keys, "latin1"));
  const server = await place(context, { [FILE]: mute });
  await server.ask();
  await assert.rejects(server.ask({ prefill: "The fox" }), { code: "MissingTokenizer" });
  server.state.version++;
  server.files[FILE] = tiny;
  // The answer comes when the copy has failed.
  server.state.holds = true;
  const loading = server.ask({ prefill: "The fox" });
  while (server.held.length === 0) await wait(5);
  await wait(300);
  server.release();
  await loading;
});

test("a file that the server refuses by now, or has no more, is given to nobody", async (context) => {
  const server = await place(context);
  await server.ask();
  for (const [status, code] of [
    [401, "Network"],
    [403, "Network"],
    [404, "NotFound"],
  ] as const) {
    server.state.status = status;
    await assert.rejects(server.ask(), { code }, String(status));
  }
  server.state.status = 200;
  await server.ask();
});

test("an abort does not wait for the server", async (context) => {
  const server = await place(context);
  await server.ask();
  const control = new AbortController();
  const { loading } = await begin(server, { signal: control.signal });
  const begun = performance.now();
  control.abort();
  await assert.rejects(loading, { name: "AbortError" });
  assert.ok(performance.now() - begun < 2000);
  server.release();
});

test("weights in one file do not wait for an index", async (context) => {
  let asked = false;
  const files: Files = {};
  for (const name of ["config.json", "model.safetensors", "tokenizer.json"]) files[name] = await demoFile(name);
  const { url } = await serveFiles(context, files, {
    answer(request) {
      const index = request.url === "/model.safetensors.index.json";
      asked ||= index;
      // It is never answered.
      return index;
    },
  });
  const model = await load(url, { threads: 1, cache: false });
  assert.equal(asked, true);
  await model.close();
});
