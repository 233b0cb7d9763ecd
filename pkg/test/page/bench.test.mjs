import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { recommend } from "ternlight/doctor";
import { start, visit } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

const open = (context, query) => visit(context, demo.browser, `${demo.isolated}bench.html${query}`);

test("the page measures a synthetic model, and saves what the command line would print", async (context) => {
  const visited = await open(context, "?shape=fairy&prompt=16&decode=8&repeat=2&threads=2&run");
  const { page, complaints, requests } = visited;
  await visited.reach("done");
  const results = await page.locator("#results").innerText();
  assert.match(results, /threads-relaxed/);
  assert.match(results, /Prefill of 16\n.*tokens\/s/);
  assert.equal(await page.getByRole("table").count(), 2);
  assert.ok(!requests.some((url) => url.includes("ternlight-demo")), "nothing is downloaded");

  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as JSON" }).click();
  const report = JSON.parse(await readFile(await (await download).path(), "utf8"));
  assert.deepEqual(report.settings, { prompt: 16, decode: 8, batch: 1, ctx: 0, warmup: 1, repeat: 2 });
  assert.equal(report.engine.threads, 2);
  assert.match(report.machine.runtime, /^Chrome \d+/);
  assert.equal(report.memory.grownBytes, 0);
  assert.ok(report.roofline.gbPerSecond > 0.1 && report.roofline.gmacPerSecond > 1);
  assert.ok(report.endToEnd.tokensPerSecond.median > 0);
  assert.deepEqual(complaints, []);
});

test("the address chooses the build and its kernels", async (context) => {
  const query = "?shape=fairy&prompt=4&decode=4&repeat=1&threads=1&profile=0&run&flavour=simd128";
  const visited = await open(context, `${query}&activations=int14&dotProduct=dot2&weightPrefetch=near`);
  await visited.reach("done");
  const { engine } = JSON.parse(await visited.page.locator("#json pre").textContent());
  assert.deepEqual(
    [engine.flavour, engine.activations, engine.dotProduct, new Set(Object.values(engine.weightPrefetch))],
    ["single-simd128", "int14", "dot2", new Set(["near"])],
  );
});

test("the page reports its device, and recommend advises on it elsewhere", async (context) => {
  const visited = await open(context, "?shape=fairy");
  const { page, complaints, requests } = visited;
  await visited.reach("ready");
  await page.getByRole("button", { name: "Report this device" }).click();
  await visited.reach("done");
  assert.match(await page.locator("#results").innerText(), /Multiplies\n[\d.]+ GMAC\/s/);
  assert.ok(!requests.some((url) => url.includes("ternlight-demo")), "no model is loaded");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as JSON" }).click();
  const file = await download;
  assert.match(file.suggestedFilename(), /^ternlight-device-\d{4}-\d\d-\d\d\.json$/);
  const device = JSON.parse(await readFile(await file.path(), "utf8"));
  assert.match(device.runtime, /^Chrome \d+/);
  assert.ok(device.readGbPerSecond > 0.1 && device.gmacPerSecond > 0.1 && device.threads >= 1);
  const load = { users: 2, promptTokens: 32, answerTokens: 16, device };
  const { fits, measured, settings } = await recommend(new URL("../../models/ternlight-demo/", import.meta.url), load);
  assert.deepEqual([fits, measured, settings.threads], [true, "a report", device.threads]);
  assert.deepEqual(complaints, []);
});

test("the demo model is measured where memory is not shared, and what is wrong is said", async (context) => {
  const url = `${demo.plain}bench.html?prompt=16&decode=8&repeat=2`;
  const visited = await visit(context, demo.browser, url);
  const { page } = visited;
  await visited.reach("ready");
  await page.getByLabel("Batch").fill("0");
  await page.getByRole("button", { name: "Measure" }).click();
  await visited.reach("failed");
  assert.match(await page.getByRole("alert").innerText(), /batch must be an integer from 1/);
  await page.getByLabel("Batch").fill("2");
  await page.getByRole("button", { name: "Measure" }).click();
  await visited.reach("done");
  assert.match(await page.locator("#results").innerText(), /single-relaxed/);
  assert.ok(await page.getByRole("alert").isHidden());
});

test("a trace is drawn as heat maps, with the number of each cell in words", async (context) => {
  const visited = await open(context, "?shape=fairy&prompt=16&decode=8&repeat=1&threads=1&trace=1&profile=0&run");
  const { page, complaints } = visited;
  await visited.reach("done");
  const maps = page.locator("#maps figure");
  assert.deepEqual(await maps.locator("figcaption").allInnerTexts(), [
    "Milliseconds by layer, a prompt of 16 tokens",
    "Milliseconds by layer, a token",
    "Share of unpacking and multiplying in each matrix",
  ]);
  const cells = await Promise.all([0, 1, 2].map((i) => maps.nth(i).locator("rect").count()));
  assert.deepEqual(cells.slice(0, 2), [6 * 6, 6 * 6]);
  // A browser's clock is too coarse for small ones, the more the sooner their code is optimised; the output is the largest.
  assert.ok(cells[2] >= 1 && cells[2] <= 7 * 6 + 1, String(cells[2]));
  const words = await maps.locator("rect title").allTextContents();
  assert.ok(words.includes((await maps.nth(1).locator("rect title").allTextContents())[0]));
  assert.match(words.at(-1), /^output, layer 0: \d+ % of [\d.]+ ms; its read alone takes [\d.]+ ms$/);
  for (const said of words.slice(0, 72))
    assert.match(said, /^(qkv|rope|attend|output|gate_up|down), layer [0-5]: [\d.]+ ms$/);
  // The largest of a map is the strongest, and the lightest is not invisible.
  const strengths = await maps
    .nth(1)
    .locator("rect")
    .evaluateAll((all) => all.map((one) => Number(one.getAttribute("fill-opacity"))));
  assert.ok(Math.max(...strengths) === 1 && Math.min(...strengths) > 0.05);
  const shown = await maps.nth(0).locator("rect").first().boundingBox();
  assert.ok(shown.width > 10 && shown.height > 10);
  assert.equal(await page.locator("#maps tr").count(), 1 + 7 * 6 + 1);
  assert.deepEqual(complaints, []);
});

/** `LOAD_SECONDS=120 node --test pkg/test/page/bench.test.mjs` stays longer. */
test("many clients in one page: each gets what it gets alone", async (context) => {
  const seconds = Number(process.env.LOAD_SECONDS ?? 2);
  const { page, complaints } = await open(context, "?shape=fairy");
  const found = await page.evaluate(async (seconds) => {
    const { load } = await import(new URL("ternlight/dist/index.js", location.href).href);
    const { loadTest } = await import(new URL("ternlight/dist/bench.js", location.href).href);
    const model = await load(new URL("ternlight/models/ternlight-demo/", location.href));
    try {
      return await loadTest(model, { clients: 32, seconds }, { processBytes: () => null });
    } finally {
      await model.close();
    }
  }, seconds);
  context.diagnostic(JSON.stringify(found));
  assert.deepEqual([found.wrong, found.answers.refused], [0, 0]);
  assert.ok(found.answers.whole > 0);
  const { running, waiting, paused, usedTokens } = found.status;
  assert.deepEqual([running, waiting, paused, usedTokens], [0, 0, 0, 0]);
  const [before, after] = found.memory.wasmBytes;
  assert.ok(after <= 1.05 * before, `${before} bytes became ${after}`);
  assert.deepEqual(complaints, []);
});
