/** A prompt that is computed while the weights come. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { type ChatMessage, inspect, type LoadOptions, load, type Model, type Prefill } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { DEMO, demo, failure, GREEDY, reason } from "./support/model.ts";

const TINY = new URL("../../../tests/golden/gguf/llama_bitlinear.TQ2_0.gguf", import.meta.url);
const LONG = "Once upon a time there was a little rabbit who lived in a hole under a tall tree. ".repeat(3);

async function loaded(context: TestContext, source: URL | string, options: LoadOptions): Promise<Model> {
  const model = await load(source, { threads: 1, cache: false, ...options });
  context.after(() => model.close());
  return model;
}

test("a generation that begins with it goes on from there, with the same answer", async (context) => {
  const plain = await demo(context);
  const expected = await plain.generate(LONG, GREEDY).finished;
  const ids = expected.promptTokens;
  const session = plain.session();
  await session.generate(ids, { ...GREEDY, maxTokens: 0 }).finished;
  const saved = await session.save();
  const kinds: [string, Prefill][] = [
    ["a text", LONG],
    ["ids", ids],
    ["ids in a typed array", Uint32Array.from(ids)],
    ["a saved session", saved],
  ];
  for (const [name, prefill] of kinds) {
    for (const threads of [1, 2]) {
      const model = await demo(context, { prefill, threads, prefillChunk: 20 });
      assert.equal(model.info.prefill?.tokens, ids.length, name);
      assert.equal(model.info.prefill?.late, null);
      const { tokens, timings } = await model.generate(LONG, GREEDY).finished;
      assert.deepEqual(tokens, expected.tokens, name);
      assert.deepEqual([timings.cachedN, timings.promptN], [ids.length - 1, 1], `${name}, ${threads} threads`);
      assert.deepEqual((await model.logits(ids)).at(-1), (await plain.logits(ids)).at(-1));
      await model.close();
    }
  }
  assert.equal(plain.info.prefill, undefined);
});

test("a chat with the same system message goes on behind it, in a session too", async (context) => {
  const system = {
    role: "system",
    content: "You answer in one short sentence, and you never lie about rabbits. ".repeat(2),
  };
  const messages: ChatMessage[] = [system, { role: "user", content: "What do rabbits eat?" }];
  const plain = await loaded(context, TINY, {});
  const expected = await plain.chat(messages, GREEDY).finished;
  for (const prefill of [messages, [system], { messages: [system], templateOptions: {} }] satisfies Prefill[]) {
    const model = await loaded(context, TINY, { prefill });
    const { tokens, timings } = await model.session().chat(messages, GREEDY).finished;
    assert.deepEqual(tokens, expected.tokens);
    assert.ok(timings.cachedN > 32, `${timings.cachedN} of ${expected.promptTokens.length}`);
  }
});

test("another prompt ends it, and has the answer that it always has", async (context) => {
  const other = "The king had three sons, and";
  const expected = await (await demo(context)).generate(other, GREEDY).text();
  const model = await demo(context, { prefill: LONG });
  assert.equal(await model.generate(other, GREEDY).text(), expected);
  const first = await demo(context, { prefill: LONG });
  const both = await Promise.all([first.generate(other, GREEDY).text(), first.generate(LONG, GREEDY).text()]);
  assert.equal(both[0], expected);
});

test("what is no prompt of the model is refused, and nothing stays", async () => {
  const refused: [Prefill, LoadOptions, string][] = [
    [LONG, { contextLength: 8 }, "ContextFull"],
    [Array.from({ length: 9 }, () => 1), { contextLength: 8 }, "ContextFull"],
    [[1, 4096], {}, "InvalidArgument"],
    [new Uint8Array(100), {}, "BadMagic"],
  ];
  for (const [prefill, options, code] of refused) {
    for (const threads of [1, 2]) {
      const error = await failure(() => load(DEMO, { threads, ...options, prefill }));
      assert.equal(error.code, code, `${error.message}`);
    }
  }
  for (const prefill of ["", [], {}, 7, [{ content: "no role" }], [1, "two"], { messages: [] }]) {
    const error = await failure(() => load("nowhere", { prefill: prefill as never }));
    assert.deepEqual([error.code, error.detail.option], ["InvalidArgument", "prefill"], JSON.stringify(prefill));
  }
  const { code } = await failure(() =>
    load(DEMO, { prefill: [{ role: "user", content: "Hi" }], chatTemplate: "{{ raise_exception('no') }}" }),
  );
  assert.notEqual(code, undefined);
});

/** Serves a file, whose last bytes come when they are let go. */
async function slow(context: TestContext, bytes: Uint8Array, held: number) {
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  let asked = () => {};
  const reached = new Promise<void>((resolve) => (asked = resolve));
  const server = createServer(async (request, response) => {
    // There is no folder around it.
    if (request.url !== "/model.gguf") return response.writeHead(404).end();
    const [, from = "0", to = ""] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const end = Math.min(to === "" ? bytes.length : Number(to) + 1, bytes.length);
    const range = `bytes ${from}-${end - 1}/${bytes.length}`;
    response.writeHead(206, { "content-range": range, "content-length": String(end - Number(from)) });
    // Rows of the last tensors are looked at before the weights are read.
    const weights = end - Number(from) > 64 << 10;
    const free = weights ? Math.max(Number(from), Math.min(end, bytes.length - held)) : end;
    response.write(bytes.subarray(Number(from), free));
    if (free < end) {
      asked();
      await released;
    }
    response.end(bytes.subarray(free, end));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/model.gguf`, release, reached };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("all but what the last bytes hold is computed before they come", async (context) => {
  const file = synthetic({ shape: "138m,layers=4,vocab=4096" });
  const bytes = new Uint8Array(await file.arrayBuffer());
  const prompt = Array.from({ length: 400 }, (_, i) => 10 + ((i * 7919) % 4000));
  for (const threads of [1, 2]) {
    /** From the release of the last bytes to the first token. */
    const first = async (prefill: number[] | undefined, wait: number) => {
      // The output norm lies in them, and some rows of the last layer's `ffn_down`.
      const server = await slow(context, bytes, 8192);
      const loading = loaded(context, server.url, { threads, prefill, warmup: false });
      await server.reached;
      await pause(wait);
      const begun = performance.now();
      server.release();
      const model = await loading;
      const { tokens, timings } = await model.generate(prompt, { temperature: 0, ignoreEos: true, maxTokens: 1 })
        .finished;
      return { ms: performance.now() - begun, tokens, timings, info: model.info };
    };
    const without = await first(undefined, 0);
    // Several times what the prompt takes on a machine as busy as this one.
    const with_ = await first(prompt, 1000 + 4 * without.timings.promptMs);
    assert.deepEqual(with_.tokens, without.tokens);
    assert.equal(with_.timings.cachedN, 399);
    // A busy machine may have got to the last layer before the load has ended.
    assert.ok(with_.info.prefill!.layers >= with_.info.config.layers - 1, `${threads} threads`);
    assert.ok(with_.ms < without.ms, `${with_.ms} ms, without ${without.ms} ms`);
  }
});

test("an abort and a close in the middle of it", async (context) => {
  const bytes = new Uint8Array(await readFile(TINY));
  for (const threads of [1, 2]) {
    const server = await slow(context, bytes, 3000);
    const controller = new AbortController();
    const why = new Error("enough");
    const options = { threads, cache: false, prefill: Array.from({ length: 100 }, (_, i) => i) };
    const loading = reason(load(server.url, { ...options, signal: controller.signal }));
    await server.reached;
    controller.abort(why);
    assert.equal(await loading, why);
    server.release();
    // Behind the load, while it is still computed.
    const model = await load(server.url, options);
    await model.close();
  }
});

test("a file in whose order the embedding comes last", async (context) => {
  const plain = await readFile(TINY);
  const bytes = await embeddingLast(plain);
  const ids = Array.from({ length: 80 }, (_, i) => i + 3);
  const expected = (await (await loaded(context, TINY, {})).generate(ids, GREEDY).finished).tokens;
  const server = await slow(context, bytes, 0);
  const reordered = await loaded(context, server.url, { prefill: ids });
  assert.deepEqual([reordered.info.prefill?.late, reordered.info.warnings.length], [null, 0]);
  assert.deepEqual((await reordered.generate(ids, GREEDY).finished).tokens, expected);
  // A hash is made in the order of the file: the load works as without `prefill`, and says so.
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const integrity = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const waiting = await loaded(context, server.url, { prefill: ids, integrity });
  assert.equal(waiting.info.prefill?.late, "token_embd.weight");
  assert.ok(waiting.info.warnings.some((warning) => /^prefill: .*token_embd\.weight/.test(warning)));
  const { tokens, timings } = await waiting.generate(ids, GREEDY).finished;
  assert.deepEqual([tokens, timings.cachedN], [expected, 79]);
});

/** The same GGUF with the data of its embedding at the end. */
async function embeddingLast(file: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = Buffer.from(file);
  const placeOf = (name: string) => {
    const length = Buffer.alloc(8);
    length.writeUInt32LE(name.length);
    const at = bytes.indexOf(Buffer.concat([length, Buffer.from(name)])) + 8 + name.length;
    return at + 4 + 8 * bytes.readUInt32LE(at) + 4;
  };
  const offsetOf = (name: string) => Number(bytes.readBigUInt64LE(placeOf(name)));
  const { tensors } = await inspect(file as Uint8Array<ArrayBuffer>);
  const length = Math.max(...tensors.map(({ name, bytes }) => offsetOf(name) + bytes));
  const data = Math.floor((bytes.length - length) / 32) * 32;
  const embedding = tensors.find(({ name }) => name === "token_embd.weight")!;
  const from = data + offsetOf(embedding.name);
  const moved = Buffer.from(bytes.subarray(from, from + embedding.bytes));
  const padding = (32 - ((bytes.length - data) % 32)) % 32;
  bytes.writeBigUInt64LE(BigInt(bytes.length - data + padding), placeOf(embedding.name));
  return new Uint8Array(Buffer.concat([bytes, Buffer.alloc(padding), moved]));
}
