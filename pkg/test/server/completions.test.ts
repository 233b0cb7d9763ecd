/** Text completions: prompts of every shape, streams, echoes and log-probabilities. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import { body, CONTINUATION, chunks, DEMO, error, served } from "./support/app.ts";

const greedy = { model: "demo", prompt: "Once upon a time", temperature: 0, max_tokens: 12 };

test("a text, its ids and lists of both have the same continuation", async (context) => {
  const app = await served(context);
  const one = await body(app.post("/v1/completions", greedy));
  assert.equal(one.object, "text_completion");
  assert.match(one.id, /^cmpl-/);
  assert.match(one.system_fingerprint, /^fp_[0-9a-f]{16}$/);
  assert.deepEqual(one.choices, [{ text: CONTINUATION, index: 0, logprobs: null, finish_reason: "length" }]);
  const { usage, timings } = one;
  assert.deepEqual([usage.prompt_tokens, usage.completion_tokens, usage.total_tokens], [4, 12, 16]);
  assert.equal(usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(timings.predicted_n, 12);
  const ids = [2343, 821, 259, 522];
  for (const prompt of [ids, [ids], ["Once upon a time"]]) {
    const { choices } = await body(app.post("/v1/completions", { ...greedy, prompt }));
    assert.deepEqual(choices, one.choices);
  }
  const many = await body(app.post("/v1/completions", { ...greedy, prompt: Array(20).fill("Once upon a time"), n: 2 }));
  assert.equal(many.choices.length, 40);
  for (const [index, choice] of many.choices.entries()) assert.deepEqual(choice, { ...one.choices[0], index });
  assert.equal(many.usage.prompt_tokens, 80);
});

test("a stream has the same text, an end, and its counts where they are asked for", async (context) => {
  const app = await served(context);
  const plain = await chunks(app.post("/v1/completions", { ...greedy, stream: true }));
  assert.equal(plain.map(({ choices }) => choices[0].text).join(""), CONTINUATION);
  assert.equal(plain.at(-1).choices[0].finish_reason, "length");
  assert.ok(plain.every((chunk) => !("usage" in chunk)));
  const told = await chunks(
    app.post("/v1/completions", { ...greedy, stream: true, stream_options: { include_usage: true } }),
  );
  assert.deepEqual(told.at(-1).choices, []);
  assert.equal(told.at(-1).usage.completion_tokens, 12);
  assert.ok(told.slice(0, -1).every(({ usage }) => usage === null));
});

test("the same seed gives the same texts, and each answer of several has its own", async (context) => {
  const app = await served(context);
  const ask = { model: "demo", prompt: "Once upon a time", temperature: 1, seed: 7, max_tokens: 16 };
  const several = await body(app.post("/v1/completions", { ...ask, n: 3 }));
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  for (const [i, { text }] of several.choices.entries()) {
    const { finished } = model.generate("Once upon a time", { temperature: 1, seed: 7 + i, maxTokens: 16 });
    assert.equal(text, (await finished).text);
  }
  const streamed = await chunks(app.post("/v1/completions", { ...ask, n: 3, stream: true }));
  const texts = ["", "", ""];
  for (const { choices } of streamed) texts[choices[0].index] += choices[0].text;
  assert.deepEqual(
    texts,
    several.choices.map(({ text }: { text: string }) => text),
  );
});

test("an echo has the log-probabilities of the prompt, which are those of its logits", async (context) => {
  const app = await served(context);
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  const prompt = "Once upon a time there was a king.";
  const ids = await model.tokenize(prompt);
  const rows = await model.logits(ids, { all: true });
  const expected = rows.slice(0, -1).map((row, i) => {
    const most = row.reduce((a, b) => Math.max(a, b));
    const sum = row.reduce((total, logit) => total + Math.exp(logit - most), 0);
    return row[ids[i + 1]!]! - most - Math.log(sum);
  });
  const ask = { model: "demo", prompt: [ids], echo: true, logprobs: 1, max_tokens: 1, temperature: 0 };
  const { choices } = await body(app.post("/v1/completions", ask));
  const { tokens, token_logprobs: found, top_logprobs: top, text_offset: offsets } = choices[0].logprobs;
  assert.equal(tokens.length, ids.length + 1);
  assert.equal(found.length, ids.length + 1);
  assert.deepEqual([found[0], top[0]], [null, null]);
  for (const [i, value] of expected.entries()) assert.ok(Math.abs(found[i + 1] - value) < 1e-5, `${i}`);
  for (const [i, row] of rows.entries()) {
    const likeliest = row.indexOf(row.reduce((a, b) => Math.max(a, b)));
    const best = Object.values<number>(top[i + 1]).reduce((a, b) => Math.max(a, b));
    assert.equal(best === found[i + 1], likeliest === (ids[i + 1] ?? likeliest), `${i}`);
  }
  assert.ok(choices[0].text.startsWith(prompt));
  assert.equal(choices[0].text.slice(offsets.at(-1)), tokens.at(-1));

  const streamed = await chunks(app.post("/v1/completions", { ...ask, stream: true }));
  assert.equal(streamed.map(({ choices }) => choices[0].text).join(""), choices[0].text);
  const gathered = streamed.flatMap(({ choices }) => choices[0].logprobs?.token_logprobs ?? []);
  assert.deepEqual(gathered, found);
  const none = await body(app.post("/v1/completions", { ...ask, max_tokens: 0 }));
  assert.equal(none.choices[0].logprobs.tokens.length, ids.length);
});

test("llama-server's samplers reach the engine", async (context) => {
  const app = await served(context);
  const text = async (more: object) =>
    (await body(app.post("/v1/completions", { ...greedy, temperature: 1, seed: 3, ...more }))).choices[0].text;
  assert.equal(await text({ top_k: 1 }), CONTINUATION);
  assert.equal(await text({ min_p: 1 }), CONTINUATION);
  assert.equal(await text({ samplers: ["top_k"], top_k: 1 }), CONTINUATION);
  assert.equal(await text({ mirostat: 2, mirostat_tau: 0.001 }), CONTINUATION);
  const banned = await text({ top_k: 1, logit_bias: { 441: -100 } });
  assert.notEqual(banned, CONTINUATION);
  assert.equal(await text({ top_k: 1, logit_bias: [[441, false]] }), banned);
  const all = Array.from({ length: 4096 }, (_, id) => [id, false]);
  const { message, param } = await error(app.post("/v1/completions", { ...greedy, logit_bias: all }), 400);
  assert.match(message, /every token is forbidden/);
  assert.equal(param, "logit_bias");
  assert.equal(await text({ top_k: 1, stop: " man" }), " there lived a");
  assert.notEqual(await text({ top_k: 1, repeat_penalty: 1.9 }), CONTINUATION);
  assert.equal(await text({ top_k: 1, repeat_penalty: 1.9, repeat_last_n: 0 }), CONTINUATION);
});

test("a limit above the room left is cut, and a prompt without room is refused", async (context) => {
  const app = await served(context, { contextLength: 32 });
  const { choices, usage } = await body(
    app.post("/v1/completions", { ...greedy, max_tokens: 100_000, ignore_eos: true }),
  );
  assert.equal(choices[0].finish_reason, "length");
  assert.ok(usage.total_tokens <= 33, String(usage.total_tokens));
  const full = await error(app.post("/v1/completions", { ...greedy, prompt: Array(40).fill(5) }), 400);
  assert.deepEqual([full.code, full.param, full.type], ["context_length_exceeded", "prompt", "invalid_request_error"]);
});
