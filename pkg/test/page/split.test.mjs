/** A model that is split over several memories, in a page: what that needs is loaded with the first such model. */
import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { golden, mounts, start } from "./support.mjs";

const GREEDY = { temperature: 0, maxTokens: 16, ignoreEos: true };

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

for (const [name, threads] of [
  ["an isolated page, with threads", 2],
  ["an isolated page, with one thread", 1],
  ["a plain page", 1],
]) {
  test(`${name} gets the same logits from several memories as from one`, async () => {
    const served = { ...mounts, "/model/": path.dirname(golden("models", "qwen35", "config.json")) };
    const headers = name === "a plain page" ? { headers: {} } : {};
    const url = await demo.server({ mounts: served, ...headers });
    const context = await demo.browser.newContext();
    const page = await context.newPage();
    const asked = [];
    context.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await page.goto(`${url}bench.html`);
    const run = (maxPartBytes) =>
      page.evaluate(
        async ([threads, maxPartBytes, sampling]) => {
          const { load } = await import("/ternlight/dist/index.js");
          const options = { threads, cache: false, contextLength: 256, warmup: false };
          const loaded = await load("/model/", { ...options, ...(maxPartBytes && { maxPartBytes }) });
          const ids = Array.from({ length: 70 }, (_, i) => 3 + 5 * i);
          const [row] = await loaded.logits(ids);
          const { tokens } = await loaded.generate(ids, sampling).finished;
          const { parts, memory } = loaded.info;
          await loaded.close();
          return { parts, total: memory.total, row: [...row], tokens };
        },
        [threads, maxPartBytes, GREEDY],
      );
    const whole = await run(0);
    assert.ok(!asked.some((path) => path.endsWith("split.js")), asked.join());
    const split = await run(Math.floor(0.52 * whole.total));
    assert.ok(asked.some((path) => path.endsWith("/dist/split.js")));
    assert.equal(whole.parts, undefined);
    assert.ok(split.parts > 2, String(split.parts));
    assert.deepEqual([split.row, split.tokens], [whole.row, whole.tokens]);
    await context.close();
  });
}
