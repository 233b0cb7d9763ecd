/** What goes wrong around a model, and that the next one loads. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { load, type Progress } from "ternlight";
import { LoadedModel, load as loadWith } from "../../src/api/model.ts";
import { owned } from "../../src/platform/node_ports.ts";
import { Client } from "../../src/rpc/client.ts";
import { EngineError } from "../../src/types/errors.ts";
import { begun, CONTINUATION, DEMO, demo, GREEDY, ONCE, reason } from "./support/model.ts";

const ENDLESS = { temperature: 0, ignoreEos: true };
const DEMO_FILES = ["config.json", "model.safetensors", "tokenizer_config.json"];

/** The typed error that a promise is rejected with. */
async function failure(promise: Promise<unknown>): Promise<EngineError> {
  const error = await reason(promise);
  assert.ok(error instanceof EngineError, `not a typed error: ${(error as Error).stack}`);
  return error;
}

/** Small numbers that look random, the same ones each time. */
function seeded(state: number): () => number {
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Whether a promise settles before the runtime has turned to its messages and timers again. */
async function atOnce(promise: Promise<unknown>): Promise<boolean> {
  const late = new Promise((resolve) => setImmediate(() => resolve("late")));
  return (await Promise.race([promise.catch(() => "settled"), late])) === "settled";
}

test("an abort settles at once, whatever the engine is at, and leaves it usable", async (context) => {
  const model = await demo(context);
  const long = Array.from({ length: 500 }, (_, i) => ONCE[i % 4]!);
  const works: [string, (signal: AbortSignal) => Promise<unknown>][] = [
    ["a prompt", (signal) => model.generate(long, { ...ENDLESS, signal }).finished],
    ["an answer", (signal) => model.generate(ONCE, { ...ENDLESS, signal }).finished],
    ["logits", (signal) => model.logits(long, { all: true, signal })],
    ["a load", (signal) => load(DEMO, { threads: 2, signal })],
  ];
  const random = seeded(1);
  for (const [name, start] of works) {
    for (let round = 0; round < 8; round++) {
      const controller = new AbortController();
      const running = start(controller.signal);
      await new Promise((resolve) => setTimeout(resolve, 20 * random()));
      controller.abort(name);
      assert.ok(await atOnce(running), `${name}, round ${round}`);
    }
  }
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
});

test("a thousand generations that are begun and aborted leave nothing behind", async () => {
  const client = new Client(owned(new Worker(new URL("../../dist/node-worker.js", import.meta.url))));
  const source = { kind: "folder", base: { kind: "path", path: DEMO.pathname } } as const;
  const info = await client.call("load", { source, settings: { threads: 1 } });
  const model = new LoadedModel(client, info);
  const bytes = async () => {
    const ids = Array.from({ length: 64 }, () => ONCE[0]!);
    return (await client.call("measure", { past: [], prompts: [ids], decode: 1, profile: false })).memoryBytes;
  };
  await model.generate(ONCE, GREEDY).finished;
  const before = await bytes();
  const random = seeded(2);
  for (let round = 0; round < 1000; round++) {
    const controller = new AbortController();
    const generation = model.generate(ONCE, { ...ENDLESS, signal: controller.signal });
    const kind = random();
    if (kind < 0.2) await begun(generation);
    else if (kind < 0.6) await new Promise((resolve) => setImmediate(resolve));
    controller.abort(round);
    assert.equal(await reason(generation.finished), round);
  }
  assert.equal(await bytes(), before);
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
  await model.close();
});

for (const [order, message] of [
  // In the middle of its work the engine waits for it, and tells nobody any more; otherwise goes on without, and is told.
  ["end a thread", /a pool worker failed|not answered for 4 s/],
  ["end", /the engine's worker failed: the worker ended by itself with code 3/],
] as const) {
  test(`a worker that dies (${order}) rejects what waits, and the next load works`, {
    timeout: 60_000,
  }, async (context) => {
    const orders = new BroadcastChannel(`ternlight ${process.pid} ${order}`);
    const script = new URL("support/pool-worker.mjs", import.meta.url);
    const options = { workerData: { orders: orders.name } };
    const spawnEngine = () => Object.assign(owned(new Worker(script, options)), { hangSeconds: 4 });
    const model = await loadWith({ spawnEngine, base: null }, DEMO.pathname, { threads: 2 });
    context.after(() => model.close());
    const session = model.session();
    const endless = { ...ENDLESS, maxTokens: 1e6, onContextFull: "shift" } as const;
    const running = model.generate(ONCE, endless);
    const iterator = await begun(running);
    const waiting = model.generate(ONCE, endless).finished;
    orders.postMessage(order);
    for (const promise of [running.finished, waiting]) {
      const { code, message: words } = await failure(promise);
      assert.equal(code, "WorkerFailed");
      assert.match(words, message);
    }
    await assert.rejects(async () => {
      while (!(await iterator.next()).done);
    }, message);
    assert.equal((await failure(model.generate(ONCE).finished)).code, "WorkerFailed");
    assert.equal((await failure(session.generate(ONCE).finished)).code, "WorkerFailed");
    await model.close();
    orders.close();
    const next = await load(DEMO, { threads: 2 });
    assert.deepEqual((await next.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
    await next.close();
  });
}

test("a thread that dies while weights come rejects the load, and the next load works", {
  timeout: 60_000,
}, async (context) => {
  const server = createServer(async (request, response) => {
    const file = new URL(request.url!.slice(1), DEMO);
    const whole = await readFile(file).catch(() => null);
    if (!whole) return response.writeHead(404).end();
    const [from, to] = (/\d+-\d+/.exec(request.headers.range ?? "")?.[0] ?? `0-${whole.length}`).split("-").map(Number);
    const bytes = whole.subarray(from, to! + 1);
    const range = `bytes ${from}-${from! + bytes.length - 1}/${whole.length}`;
    response.writeHead(206, { "content-length": bytes.length, "content-range": range });
    // A little at a time, so that there is a middle.
    for (let at = 0; at < bytes.length && !response.destroyed; at += 50_000) {
      response.write(bytes.subarray(at, at + 50_000));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  const orders = new BroadcastChannel(`ternlight ${process.pid} load`);
  context.after(() => orders.close());
  const script = new URL("support/pool-worker.mjs", import.meta.url);
  const options = { workerData: { orders: orders.name } };
  const spawnEngine = () => Object.assign(owned(new Worker(script, options)), { hangSeconds: 4 });
  const { port } = server.address() as AddressInfo;
  let told = false;
  const onProgress = ({ loaded }: Progress) => {
    if (loaded > 0 && !told) orders.postMessage("end a thread");
    told ||= loaded > 0;
  };
  const loading = loadWith({ spawnEngine, base: null }, `http://127.0.0.1:${port}/`, {
    threads: 2,
    cache: false,
    onProgress,
  });
  loading.then(
    (model) => model.close(),
    () => {},
  );
  const { code, message } = await failure(loading);
  assert.equal(code, "WorkerFailed");
  assert.match(message, /a pool worker failed|not answered for 4 s/);
  const next = await load(DEMO, { threads: 2 });
  assert.deepEqual((await next.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
  await next.close();
});

test("a tokenizer's pattern that never ends is given up, and other answers go on", {
  timeout: 60_000,
}, async (context) => {
  const files: Record<string, Uint8Array> = {};
  for (const name of DEMO_FILES) files[name] = await readFile(new URL(name, DEMO));
  const tokenizer = JSON.parse(await readFile(new URL("tokenizer.json", DEMO), "utf8"));
  // Twice as long for each further letter.
  tokenizer.pre_tokenizer = {
    type: "Sequence",
    pretokenizers: [
      { type: "Split", pattern: { Regex: "(a+)+$" }, behavior: "Isolated", invert: false },
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  };
  files["tokenizer.json"] = new TextEncoder().encode(JSON.stringify(tokenizer));
  const model = await load(files, { threads: 1 });
  context.after(() => model.close());
  const hostile = `${"a".repeat(60)}!`;
  const running = model.generate(ONCE, { temperature: 0, maxTokens: 8 });
  for (const promise of [model.tokenize(hostile), model.generate(hostile).finished]) {
    const { code, message } = await failure(promise);
    assert.equal(code, "BadTokenizer");
    assert.match(message, /pattern/);
  }
  assert.equal((await running.finished).tokens.length, 8);
  assert.ok((await model.tokenize("a")).length > 0);
});
