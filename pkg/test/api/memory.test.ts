import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import { smollm2 } from "../cli/support/golden.ts";
import { DEMO, GREEDY, ONCE } from "./support/model.ts";

const MB = 1e6;
const rss = () => process.memoryUsage().rss / MB;

/** `make soak` writes 2,000. */
const TOKENS = Number(process.env.MEMORY_TOKENS ?? 600);

test("hundreds of tokens of SmolLM2 take no memory", { timeout: 900_000 }, async (context) => {
  const positions = TOKENS + 48;
  const model = await load(smollm2(), { contextLength: positions, kvCacheTokens: positions });
  context.after(() => model.close());
  const prompt = [504, 3575, 282, 4649, 314];
  // The cache is reserved but a page of it becomes real when it is first written: once through all of its blocks.
  await model.logits(Array.from({ length: positions }, (_, i) => prompt[i % prompt.length]!));

  const seen: number[] = [];
  const options = { maxTokens: TOKENS, temperature: 0.9, seed: 1, ignoreEos: true };
  let told = 0;
  for await (const { tokens } of model.generate(prompt, options)) {
    for (const _ of tokens) if (++told % 100 === 0) seen.push(rss());
  }
  assert.equal(told, TOKENS);
  context.diagnostic(`MB resident at each hundred tokens: ${seen.map(Math.round).join(" ")}`);
  // JavaScript's own heap breathes by some megabytes; a row of logits kept with each token would be 78 of them.
  const grown = seen.at(-1)! - seen[1]!;
  assert.ok(grown < 16, `${grown.toFixed(1)} MB from token 200 to token ${TOKENS}`);
  assert.ok(model.info.memoryBytes < 1.5 * model.info.memory.total);
});

test("a closed model gives its memory back", { timeout: 120_000 }, async (context) => {
  const held: number[] = [];
  for (let round = 0; round < 50; round++) {
    const model = await load(DEMO, { contextLength: 512, prefillChunk: 2048, kvCacheType: "f32" });
    assert.ok(model.info.memoryBytes > 20 * MB);
    await model.generate(ONCE, GREEDY).finished;
    await model.close();
    // The worker ends a moment later.
    await new Promise((resolve) => setTimeout(resolve, 50));
    held.push(rss());
  }
  context.diagnostic(`MB resident after each round: ${held.map(Math.round).join(" ")}`);
  const grown = Math.min(...held.slice(-4)) - Math.min(...held.slice(2, 6));
  assert.ok(grown < 40, `${grown.toFixed(1)} MB in more than forty rounds of more than 20 each`);
});
