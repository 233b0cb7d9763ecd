/** What the responses of a server keep in memory while they are made. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model, TokenLogprobs } from "ternlight";
import { createApp } from "ternlight/server";
import { MAX_GATHERED, MAX_HELD } from "../../src/server/gathered.ts";
import { Share } from "../../src/server/share.ts";
import { asked, body, error, loader, served } from "./support/app.ts";

const LENGTH = 500;
const prompts = (count: number) => Array.from({ length: count }, (_, i) => Array(LENGTH).fill(5 + (i % 50)));
const ask = { model: "demo", max_tokens: 1, temperature: 0, echo: true, logprobs: 1 };

test("log-probabilities and answers of a request are bounded, and the error names the field", async (context) => {
  const app = await served(context);
  const refused = async (more: object, path = "/v1/completions") =>
    (await error(app.post(path, { ...ask, ...more }), 400)).param;
  assert.equal(await refused({ prompt: prompts(2048).map((ids) => ids.concat(Array(11).fill(5))) }), "logprobs");
  assert.equal(await refused({ prompt: Array(20).fill("a ".repeat(240)), n: 32, logprobs: 5 }), "logprobs");
  assert.equal(await refused({ prompt: prompts(2), n: 128, logprobs: 5 }), "logprobs");
  assert.equal(await refused({ prompt: Array(2048).fill("a"), n: 2, echo: false }), "n");
  const messages = [{ role: "user", content: "Hi" }];
  const many = { messages, n: 64, logprobs: true, top_logprobs: 20, max_tokens: 100_000 };
  assert.equal(await refused(many, "/v1/chat/completions"), "logprobs");
  // lm-eval sends a batch of these.
  const { choices } = await body(app.post("/v1/completions", { ...ask, prompt: prompts(8) }));
  assert.deepEqual([choices.length, choices[7].logprobs.tokens.length], [8, LENGTH + 1]);
});

test("responses that are made at once share what they keep", async (context) => {
  const found = await loader()({});
  let [held, most, made] = [0, 0, 0];
  // What a prompt of that length makes, without the time to compute it.
  const promptLogprobs = async (ids: number[]): Promise<TokenLogprobs[]> => {
    made += ids.length;
    most = Math.max(most, process.memoryUsage().rss);
    const one = (i: number) => ({ token: ids[i]!, logprob: -1 - i / 1000 });
    return ids.slice(1).map((_, i) => ({ ...one(i), top: [0, 1, 2, 3, 4].map((j) => one((i + j) % ids.length)) }));
  };
  const model: Model = new Proxy(found, {
    get: (target, name) => {
      if (name === "promptLogprobs") return promptLogprobs;
      if (name === "generate") return (ids: number[], options: object) => target.generate(ids.slice(0, 4), options);
      const value = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const app = asked(createApp({ models: { demo: model } }));
  context.after(() => app.close());
  await app.ready;
  const count = Math.floor(MAX_GATHERED / 6 / (LENGTH + 1));
  const send = async () => {
    held++;
    const response = await app.post("/v1/completions", { ...ask, logprobs: 5, prompt: prompts(count), max_tokens: 1 });
    assert.equal(response.status, 200);
    assert.ok((await response.arrayBuffer()).byteLength > 1_000_000);
    held--;
  };
  await send();
  const before = process.memoryUsage().rss;
  await Promise.all(Array.from({ length: 8 }, send));
  assert.deepEqual([held, made], [0, 9 * count * LENGTH]);
  const grown = (most - before) / 2 ** 20;
  assert.ok(grown < 500, `${grown.toFixed(0)} MiB more`);
});

test("a share is given in turn, and one who leaves the queue gets nothing", async () => {
  const share = new Share(MAX_HELD);
  const never = new AbortController().signal;
  const first = await share.take(MAX_HELD - 1, never);
  const gone = new AbortController();
  const left = share.take(2, gone.signal);
  const order: number[] = [];
  const small = share.take(1, never).then((back) => [order.push(1), back] as const);
  await Promise.resolve();
  assert.equal(order.length, 0, "it came later than one who waits");
  gone.abort(new Error("gone"));
  await assert.rejects(left, /gone/);
  const [, back] = await small;
  const all = share.take(MAX_HELD, never).then(() => order.push(2));
  first();
  first();
  await Promise.resolve();
  assert.deepEqual(order, [1]);
  back();
  await all;
  assert.deepEqual(order, [1, 2]);
});
