/** Metrics and health in a page: what they need is loaded when somebody asks. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { start } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

test("a page that asks counts from then on, and one that does not loads nothing for it", async () => {
  const context = await demo.browser.newContext();
  const page = await context.newPage();
  const asked = [];
  context.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${demo.isolated}bench.html`);
  const run = (health) =>
    page.evaluate(async (health) => {
      const { load } = await import("/ternlight/dist/index.js");
      const { default: model } = await import("/ternlight/dist/demo.js");
      const loaded = await load(model, { threads: 1, cache: false, health });
      const answer = () => loaded.generate([5, 6, 7, 8], { maxTokens: 6, ignoreEos: true }).finished;
      await answer();
      globalThis.model = { loaded, answer };
    }, health);
  await run(false);
  assert.ok(!asked.some((path) => path.endsWith("signals.js")), asked.join());
  const { before, after } = await page.evaluate(async () => {
    const { loaded, answer } = globalThis.model;
    const before = (await loaded.statistics()).generatedTokens;
    await answer();
    return { before, after: await loaded.metrics() };
  });
  assert.equal(before, 0);
  assert.match(after, /^ternlight_generated_tokens_total\{model="[^"]*"\} 6$/m);
  assert.ok(asked.some((path) => path.endsWith("/dist/signals.js")));
  await run({ share: 1 });
  const { state, signals } = await page.evaluate(() =>
    globalThis.model.loaded.health({ full: true, damage: { codes: 2 } }),
  );
  assert.deepEqual([state, signals.weights.from.changed], ["alert", 2]);
  // The warm-up behind the load may have a token among them.
  assert.ok(signals.perplexity.from.tokens >= 6);
  await context.close();
});
