/** Requests of several parts in a small queue: one is refused only where none of its parts gets a place. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { body, CONTINUATION, chunks, error, served } from "./support/app.ts";

const prompt = "Once upon a time";
const ask = { model: "demo", prompt, max_tokens: 12, temperature: 0 };
const long = { ...ask, max_tokens: 300, ignore_eos: true };

for (const [maxSequences, maxWaiting] of [
  [1, 4],
  [2, 0],
  [1, 0],
] as const) {
  test(`parts wait for each other with ${maxSequences} and ${maxWaiting} places`, async (context) => {
    const app = await served(context, { maxSequences, maxWaiting });
    const completions = (more: object) => app.post("/v1/completions", { ...ask, ...more });
    const several = await body(completions({ n: 16 }));
    assert.deepEqual(
      several.choices.map(({ text }: { text: string }) => text),
      Array(16).fill(CONTINUATION),
    );
    assert.equal((await body(completions({ prompt: Array(50).fill(prompt) }))).choices.length, 50);
    assert.equal(
      (await body(completions({ prompt: Array(12).fill(prompt), echo: true, logprobs: 1 }))).choices.length,
      12,
    );
    const streamed = await chunks(completions({ n: 12, stream: true }));
    assert.equal(new Set(streamed.map(({ choices }) => choices[0]?.index)).size, 12);
    const messages = [{ role: "user", content: prompt }];
    assert.equal((await body(app.post("/v1/chat/completions", { ...ask, messages, n: 9 }))).choices.length, 9);
  });
}

test("a request of several parts is refused where all places are taken, and only there", async (context) => {
  const app = await served(context, { maxSequences: 1, maxWaiting: 4 });
  const taken = app.post("/v1/completions", { ...long, n: 5 });
  const waiting = async () => (await body(app.get("/status"))).models[0].waiting;
  while ((await waiting()) < 4) await new Promise((resolve) => setTimeout(resolve, 1));
  for (const more of [{ n: 16 }, { prompt: Array(12).fill(prompt) }, { n: 16, stream: true }]) {
    assert.equal((await error(app.post("/v1/completions", { ...ask, ...more }), 429)).code, "queue_full");
  }
  assert.equal((await error(app.post("/v1/embeddings", { model: "demo", input: ["a", "b"] }), 429)).code, "queue_full");
  assert.equal((await body(taken)).choices.length, 5);
});

test("two requests at once share the places that are left", async (context) => {
  const app = await served(context, { maxSequences: 2, maxWaiting: 38 });
  const others = Array.from({ length: 34 }, () => app.post("/v1/completions", { ...ask, max_tokens: 40 }));
  const taken = async () => {
    const { running, waiting } = (await body(app.get("/status"))).models[0];
    return running + waiting;
  };
  while ((await taken()) < 34) await new Promise((resolve) => setTimeout(resolve, 1));
  const both = [16, 5].map((n) => app.post("/v1/completions", { ...ask, n }));
  // Six places are left: the one that comes first gets those, and the other one is refused where it gets none.
  const [first, second] = await Promise.all(both);
  assert.equal((await body(first!)).choices.length, 16);
  assert.ok([200, 429].includes(second!.status));
  for (const other of others) await body(other);
});

test("texts to embed wait for a place beside another request", async (context) => {
  const app = await served(context, { maxSequences: 2, maxWaiting: 0 });
  const other = app.post("/v1/completions", long);
  while ((await body(app.get("/status"))).models[0].running < 1) await new Promise((resolve) => setTimeout(resolve, 1));
  const { data } = await body(app.post("/v1/embeddings", { model: "demo", input: Array(9).fill("a king") }));
  assert.equal(data.length, 9);
  assert.ok(data.every(({ embedding }: { embedding: number[] }) => Math.abs(Math.hypot(...embedding) - 1) < 1e-5));
  await body(other);
});
