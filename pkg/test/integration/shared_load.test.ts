/** One load for many users: who waits, who holds, and when it ends. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { EngineError, load, type Model } from "ternlight";
import { chatParts, type LoadHooks, SharedLoad, sharedLoad } from "ternlight/integration";
import { DEMO } from "../api/support/model.ts";
import { HERMES, PLAIN } from "../server/support/app.ts";

const options = { threads: 1, chatTemplate: PLAIN };
const loading = (counts: { loads: number }) => (hooks: LoadHooks) => {
  counts.loads++;
  return load(DEMO, { ...options, ...hooks });
};

test("all who ask get the same model, and hear how far it is", async () => {
  const counts = { loads: 0 };
  const shared = new SharedLoad(loading(counts));
  const seen: string[] = [];
  const stop = shared.subscribe(() => seen.push(shared.state.status));
  assert.equal(shared.state.status, "idle");
  const [one, two] = await Promise.all([shared.get(), shared.get()]);
  assert.equal(one, two);
  assert.equal(counts.loads, 1);
  assert.equal(shared.state.model, one);
  assert.equal(seen[0], "loading");
  assert.equal(seen.at(-1), "ready");
  stop();
  await shared.close();
  assert.equal(shared.state.status, "idle");
  assert.equal(seen.at(-1), "ready", "who has stopped hears nothing");
  await assert.rejects(one.countTokens("x"), { code: "Closed" });
});

test("a model is closed when the last who holds it lets go, but not when it is held again at once", async () => {
  const counts = { loads: 0 };
  const shared = new SharedLoad(loading(counts));
  const first = shared.hold();
  first();
  const second = shared.hold();
  first();
  await sleep(20);
  const model = await new Promise<Model>((resolve) => {
    const stop = shared.subscribe(() => {
      if (shared.state.model) resolve(shared.state.model);
      if (shared.state.model) stop();
    });
  });
  assert.equal(counts.loads, 1);
  await shared.close();
  assert.equal(await model.countTokens("Once upon a time"), 4, "it is held");
  second();
  await sleep(20);
  await assert.rejects(model.countTokens("x"), { code: "Closed" });
  assert.equal(shared.state.status, "idle");
});

test("who has asked for a model keeps it when others let go", async () => {
  const shared = new SharedLoad(loading({ loads: 0 }));
  const release = shared.hold();
  const model = await shared.get();
  release();
  await sleep(20);
  assert.equal(await model.countTokens("Once upon a time"), 4);
  await shared.close();
});

test("a load ends with the last who waits for it", async () => {
  const aborted: boolean[] = [];
  const shared = new SharedLoad(
    ({ signal }) =>
      new Promise((_, reject) =>
        signal.addEventListener("abort", () => {
          aborted.push(true);
          reject(signal.reason);
        }),
      ),
  );
  const [one, two] = [new AbortController(), new AbortController()];
  const waits = [shared.get(one.signal), shared.get(two.signal)].map((wait) => wait.catch((error) => error.message));
  one.abort(new Error("one"));
  assert.equal(await waits[0], "one");
  assert.deepEqual([aborted.length, shared.state.status], [0, "loading"]);
  two.abort(new Error("two"));
  assert.equal(await waits[1], "two");
  await sleep(1);
  assert.deepEqual([aborted.length, shared.state.status], [1, "idle"]);
  await assert.rejects(shared.get(AbortSignal.abort(new Error("early"))), { message: "early" });
});

test("an error is told to all, and the next user loads anew", async () => {
  let fail = true;
  const shared = new SharedLoad(async (hooks) => {
    if (fail) throw new EngineError("Network", "not now");
    return load(DEMO, { ...options, ...hooks });
  });
  const both = await Promise.allSettled([shared.get(), shared.get()]);
  assert.ok(both.every((one) => one.status === "rejected" && one.reason.code === "Network"));
  assert.equal(shared.state.status, "error");
  assert.equal((shared.state.error as EngineError).code, "Network");
  fail = false;
  shared.retry();
  assert.equal(shared.state.status, "loading");
  const model = await shared.get();
  // A model that is lost is no model any more.
  await model.close();
  await sleep(1);
  assert.deepEqual([shared.state.status, shared.state.model], ["error", null]);
  assert.notEqual(await shared.get(), model);
  await shared.close();
});

test("equal sources and options are one load, in any order of the options", () => {
  const bytes = new Uint8Array([1]);
  const of = (...args: [Parameters<typeof load>[0], Parameters<typeof load>[1]?]) => sharedLoad(load, ...args);
  const url = "https://example.com/model.gguf";
  assert.equal(of(url), of(new URL(url)));
  assert.equal(of(url, { threads: 1, flavour: "relaxed" }), of(url, { flavour: "relaxed", threads: 1 }));
  assert.equal(of(url, { threads: undefined, signal: AbortSignal.abort(), onProgress() {} }), of(url));
  assert.notEqual(of(url, { threads: 1 }), of(url));
  assert.notEqual(of(url, { prefill: "1" }), of(url, { prefill: [1] }));
  assert.notEqual(of(url, { prefill: bytes }), of(url, { prefill: new Uint8Array([1]) }));
  assert.equal(of(url, { prefill: bytes }), of(url, { prefill: bytes }));
  assert.equal(of(bytes), of(bytes));
  assert.notEqual(of(bytes), of(new Uint8Array([1])));
  assert.notEqual(
    sharedLoad((source) => load(source), url),
    of(url),
  );
});

test("an answer in parts is what chat gives, and one call ends it", async () => {
  const model = await load(DEMO, { ...options, chatTemplate: HERMES });
  try {
    const messages = [{ role: "user", content: "Once upon a time" }];
    const greedy = { temperature: 0, maxTokens: 12 };
    let text = "";
    for await (const part of chatParts(model, messages, greedy)) {
      if (part.type === "text") text += part.text;
      else if (part.type === "end") assert.equal(part.finished.text, text);
    }
    assert.equal(text, await model.chat(messages, greedy).text());

    const properties = { city: { enum: ["Oslo", "Rome"] } };
    const parameters = { type: "object", properties, required: ["city"], additionalProperties: false };
    const tools = [{ type: "function", function: { name: "weather", parameters } }];
    const calls: { name: string; text: string }[] = [];
    const ask = { ...greedy, maxTokens: 400, tools, toolChoice: "required" as const, oneCall: true };
    for await (const part of chatParts(model, messages, ask)) {
      if (part.type === "call") calls.push({ name: part.name, text: "" });
      if (part.type === "arguments") calls[part.call]!.text += part.text;
    }
    assert.equal(calls.length, 1);
    assert.match(JSON.parse(calls[0]!.text).city, /^(Oslo|Rome)$/);

    // Leaving the loop stops the answer.
    for await (const part of chatParts(model, messages, { maxTokens: 2000 })) if (part.type === "text") break;
    for (let i = 0; (await model.status()).running > 0; i++) assert.ok(i < 1000, "it still runs");
  } finally {
    await model.close();
  }
});
