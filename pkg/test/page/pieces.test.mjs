/** Pieces in a page: joined, and at most one in a frame, unless each token is asked for. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { start } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

test("at most one piece comes in a frame, and with pieces: token each token's", async () => {
  const page = await demo.browser.newPage();
  await page.goto(`${demo.isolated}bench.html`);
  const read = (options) =>
    page.evaluate(async (options) => {
      const { load } = await import("/ternlight/dist/index.js");
      const { default: model } = await import("/ternlight/dist/demo.js");
      const loaded = await load(model, { threads: 1, cache: false });
      let frame = 0;
      const count = () => requestAnimationFrame(() => count(frame++));
      count();
      const found = [];
      let text = "";
      const generation = loaded.generate("Once", { temperature: 0, ignoreEos: true, maxTokens: 400, ...options });
      for await (const piece of generation) {
        found.push(frame);
        text += piece.text;
      }
      const whole = (await generation.finished).text;
      await loaded.close();
      return { frames: found, text, whole };
    }, options);
  const joined = await read({});
  assert.equal(joined.text, joined.whole);
  assert.equal(new Set(joined.frames).size, joined.frames.length, `pieces in frames ${joined.frames.join(" ")}`);
  const each = await read({ pieces: "token" });
  assert.equal(each.text, joined.whole);
  assert.ok(each.frames.length > 300, `${each.frames.length} pieces`);
  assert.ok(joined.frames.length < each.frames.length / 2, `${joined.frames.length} pieces`);
  await page.close();
});
