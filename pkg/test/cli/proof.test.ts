/** Real models against what other implementations made of them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { farthest, follow, golden, smollm2 } from "./support/golden.ts";
import { DEMO, json, path } from "./support/ternlight.ts";

/**
 * Activations are rounded to int8, and one that lies on a rounding boundary falls to either side by the last bit of a sum:
 * transformers differs from itself by 0.13 on a logit (fairy-bitnet's README), so two logits this near are a tie.
 */
const INT8_TIE = 0.2;

test("the fairy model continues as transformers does", async (context) => {
  const { cases } = golden("fairy-bitnet/golden.json");
  assert.equal(cases.length, 3);
  for (const { prompt, prompt_ids, float32 } of cases) {
    const { ids } = await json("tokenize", DEMO, "-p", prompt);
    assert.deepEqual(ids, prompt_ids);
    const far = await farthest(DEMO, ids, { ids: float32.top10_ids, logits: float32.top10_logits });
    assert.ok(far <= INT8_TIE, `${prompt}: a logit is off by ${far}`);
    const steps = await follow(DEMO, ids, float32.greedy_ids, INT8_TIE);
    context.diagnostic(
      `${JSON.stringify(prompt)}: ${steps} of ${float32.greedy_ids.length} steps agree, logits within ${far.toFixed(4)}`,
    );
  }
});

test("the perplexity of the held-out text is the one of its README", { timeout: 300_000 }, async (context) => {
  const { file, window, predicted, perplexity } = golden("fairy-bitnet/heldout.json");
  const ours = await json("perplexity", DEMO, path(`tests/golden/fairy-bitnet/${file}`), "--window", String(window));
  const off = ours.perplexity / perplexity - 1;
  context.diagnostic(`${ours.perplexity.toFixed(4)}, ${(100 * off).toFixed(3)} % from ${perplexity}`);
  assert.equal(ours.tokens, predicted);
  assert.ok(Math.abs(off) <= 0.005);
});

test("SmolLM2 continues as its weights with float activations do", { timeout: 300_000 }, async (context) => {
  const model = smollm2();
  const { prompts } = golden("smollm2/golden.json");
  assert.equal(prompts.length, 3);
  for (const { prompt, input_ids, transformers_f32: expected } of prompts) {
    const { ids } = await json("tokenize", model, "-p", prompt);
    assert.deepEqual(ids, input_ids);
    const top = { ids: expected.top20_ids, logits: expected.top20_logits };
    // Fourteen bits of each activation, against all of them.
    const far = await farthest(model, ids, top);
    assert.ok(far <= 0.02, `${prompt}: a logit is off by ${far}`);
    // A tie within twice the distance: both logits may move.
    const steps = await follow(model, ids, expected.greedy, 0.04);
    context.diagnostic(`${steps} of ${expected.greedy.length} steps agree, logits within ${far.toFixed(4)}`);
  }
  // With all of their bits nothing but the order of sums differs.
  const [{ input_ids, transformers_f32: all }] = prompts;
  const top = { ids: all.top20_ids, logits: all.top20_logits };
  const exact = await farthest(model, input_ids, top, "--activations", "float");
  assert.ok(exact <= 1e-3, `a logit is off by ${exact} with float activations`);
  context.diagnostic(`with float activations within ${exact.toExponential(1)}`);
});
