/** The tools for smaller models in a page, on bytes of its own. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { golden, start } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

test("a page checks, slices, prunes, calibrates and measures a file that its user has given", async () => {
  const session = await demo.browser.newContext();
  const page = await session.newPage();
  const requests = [];
  page.on("request", (request) => requests.push(new URL(request.url()).pathname));
  await page.goto(`${demo.isolated}bench.html`);
  assert.ok(!requests.some((path) => path.includes("quality")), "nothing of it comes unasked");
  await page.evaluate(() => {
    const input = Object.assign(document.createElement("input"), { type: "file", id: "model" });
    document.body.append(input);
  });
  await page.setInputFiles("#model", golden("gguf", "onebitllm_style.F16.gguf"));
  const text = (await readFile(golden("fairy-bitnet", "heldout.txt"), "utf8")).slice(0, 3000);
  const found = await page.evaluate(async (text) => {
    const { calibrate, check, prune, quality, slice } = await import("/ternlight/dist/quality.js");
    const [file] = document.querySelector("#model").files;
    const bytes = async (made) => {
      const parts = [];
      for await (const piece of made.stream()) parts.push(piece);
      return new Blob(parts);
    };
    const { findings, mended } = await check(file);
    const fixed = await bytes(mended);
    const left = (await check(fixed)).findings.length;
    const sliced = await slice(fixed, { keep: 400, text });
    const cut = await bytes(sliced.file);
    const pruned = await prune(cut, { targetLayers: 1, texts: [text], tokens: 64, by: "influence" });
    const small = await bytes(pruned.file);
    const { rows } = await quality(small, text.slice(0, 400), { kv: ["q8"] });
    // Every input has fewer bits than that: none stays as it was.
    const { map } = await calibrate(fixed, { texts: [text], samples: 2, tokens: 64, entropyThreshold: 8 });
    return {
      map,
      rules: findings.map(({ rule }) => rule),
      left,
      sizes: [file, fixed, cut, small].map(({ size }) => size),
      rows,
    };
  }, text);
  assert.deepEqual([...new Set(found.rules)], ["dense-ternary"]);
  assert.equal(found.left, 0);
  const [file, fixed, cut, small] = found.sizes;
  assert.ok(file > fixed && fixed > cut && cut > small, found.sizes.join());
  assert.ok(Number.isFinite(found.rows[0].perplexity) && found.rows[0].kl > 0);
  assert.ok(Object.values(found.map).every((precision) => precision === "int4" || precision === "int2"));
  assert.ok(Object.keys(found.map).length > 0);
  assert.ok(requests.some((path) => path.endsWith("/dist/maps.js")));
  await session.close();
});
