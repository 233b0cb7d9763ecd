/** Requests of several parts in a small queue: one is refused only where none of its parts gets a place. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { LoadOptions, Model } from "ternlight";
import { body, CONTINUATION, chunks, error, loader, type Served, served } from "./support/app.ts";

const prompt = "Once upon a time";
const ask = { model: "demo", prompt, max_tokens: 12, temperature: 0 };
/** An app whose model is busy with so many answers that do not end before `release`. */
async function busy(context: TestContext, options: LoadOptions, answers: number) {
  let model: Model | undefined;
  const demo = async (more: LoadOptions) => (model = await loader(options)(more));
  const app = await served(context, {}, { models: { demo } });
  const endless = { ignoreEos: true, maxTokens: 1e6, onContextFull: "shift" } as const;
  const held = Array.from({ length: answers }, () => model!.generate(prompt, endless));
  // One that nobody reads would rest, and leave its place to others.
  const ended = Promise.all(held.map(({ finished }) => finished));
  // A short request would overtake one that still waits.
  await until(app, ({ running }) => running === answers);
  const release = async () => {
    for (const one of held) one.stop();
    await ended;
  };
  return { app, release };
}

interface Counts {
  running: number;
  paused: number;
  waiting: number;
}

async function until(app: Served, holds: (counts: Counts) => boolean): Promise<void> {
  while (!holds((await body(app.get("/status"))).models[0])) await new Promise((resolve) => setTimeout(resolve, 1));
}

const taken = (app: Served, places: number) =>
  until(app, ({ running, paused, waiting }) => running + paused + waiting === places);

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
  const { app, release } = await busy(context, { maxSequences: 1, maxWaiting: 4 }, 1);
  const all = app.post("/v1/completions", { ...ask, n: 4 });
  await taken(app, 5);
  for (const more of [{ n: 16 }, { prompt: Array(12).fill(prompt) }, { n: 16, stream: true }]) {
    assert.equal((await error(app.post("/v1/completions", { ...ask, ...more }), 429)).code, "queue_full");
  }
  assert.equal((await error(app.post("/v1/embeddings", { model: "demo", input: ["a", "b"] }), 429)).code, "queue_full");
  await release();
  assert.equal((await body(all)).choices.length, 4);
});

test("two requests at once share the places that are left", async (context) => {
  const { app, release } = await busy(context, { maxSequences: 2, maxWaiting: 38 }, 2);
  const others = Array.from({ length: 32 }, () => app.post("/v1/completions", ask));
  await taken(app, 34);
  const both = [16, 5].map((n) => app.post("/v1/completions", { ...ask, n }));
  await taken(app, 40);
  await release();
  // Six places were left: the one that comes first gets those, and the other one is refused where it gets none.
  const [first, second] = await Promise.all(both);
  assert.equal((await body(first!)).choices.length, 16);
  assert.ok([200, 429].includes(second!.status));
  for (const other of others) await body(other);
});

test("texts to embed wait for a place beside another request", async (context) => {
  const { app, release } = await busy(context, { maxSequences: 2, maxWaiting: 0 }, 1);
  const { data } = await body(app.post("/v1/embeddings", { model: "demo", input: Array(9).fill("a king") }));
  assert.equal(data.length, 9);
  assert.ok(data.every(({ embedding }: { embedding: number[] }) => Math.abs(Math.hypot(...embedding) - 1) < 1e-5));
  await release();
});
