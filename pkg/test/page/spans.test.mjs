/** `userTiming` in a page: DevTools reads the page's own timeline. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { start } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

test("the worker's steps stand in the page's timeline", async () => {
  const page = await demo.browser.newPage();
  await page.goto(`${demo.isolated}bench.html`);
  const { entries, began, ended } = await page.evaluate(async () => {
    const { load } = await import("/ternlight/dist/index.js");
    const { default: model } = await import("/ternlight/dist/demo.js");
    const loaded = await load(model, { threads: 1, cache: false, userTiming: true });
    const began = performance.now();
    await loaded.generate([5, 6, 7, 8], { maxTokens: 6, ignoreEos: true }).text();
    const ended = performance.now();
    await loaded.close();
    const entries = performance.getEntriesByType("measure").map(({ name, startTime, duration, detail }) => {
      return { name, start: startTime, end: startTime + duration, ...detail.devtools };
    });
    return { entries, began, ended };
  });
  assert.deepEqual([...new Set(entries.map(({ trackGroup }) => trackGroup))], ["ternlight"]);
  assert.ok(entries.some(({ track, name }) => track === "load" && name === "load"));
  const steps = entries.filter(({ track }) => track.startsWith("request"));
  assert.deepEqual(
    steps.map(({ name }) => name),
    ["prefill 4", ...Array(5).fill("decode 1")],
  );
  // Clocks of threads are set apart by less than this.
  for (const { start, end } of steps) assert.ok(began - 20 < start && start <= end && end < ended + 20);
  await page.close();
});
