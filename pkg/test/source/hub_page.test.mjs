/** Names of models on a hub in a page, which loads what finds them with the first one. The hub's own address leads to one on loopback. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, serve } from "../package/support.mjs";
import { startHub } from "./support/hub.ts";
import { goldenFile } from "./support/models.ts";

const dist = fileURLToPath(new URL("../../dist/", import.meta.url));

test("a page asks the hub, and loads no code for it before", { timeout: 60_000 }, async (context) => {
  const file = await goldenFile("gguf/llama_bitlinear.I2_S.gguf");
  const main = { "model-Q4_0.gguf": file.subarray(0, 100), "model-i2_s.gguf": file };
  const revisions = { main };
  const repositories = { "owner/repo": { revisions }, "owner/gated": { revisions, gated: true } };
  const hub = await startHub(context, { repositories });
  const asked = [];
  const server = await serve({ mounts: { "/ternlight/": dist }, asked });
  const browser = await launch();
  context.after(() => Promise.all([browser.close(), server.close()]));
  const page = await browser.newPage();
  await page.route("https://huggingface.co/**", async (route) => {
    const request = route.request();
    const url = request.url().replace("https://huggingface.co", hub.url);
    const range = request.headers().range;
    const response = await fetch(url, { method: request.method(), headers: range ? { range } : {} });
    const headers = Object.fromEntries(response.headers);
    await route.fulfill({ status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) });
  });
  await page.route(`${server.url}`, (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html>" }));
  await page.goto(server.url);
  const loaded = (name) => asked.filter((path) => path.endsWith(name)).length;
  const tried = (source) =>
    page.evaluate(async (source) => {
      const { load } = await import("/ternlight/index.js");
      try {
        const model = await load(source, { threads: 1 });
        const { kinds, warnings } = model.info;
        await model.close();
        return { kinds, warnings };
      } catch (error) {
        return { code: error.code, message: error.message };
      }
    }, source);
  assert.equal((await tried("/absent.gguf")).code, "NotFound");
  assert.equal(loaded("/hub.js"), 0);
  const { kinds, warnings, message } = await tried("hf:owner/repo");
  assert.ok("I2_S" in (kinds ?? {}), message);
  assert.match(warnings.join(), /model-i2_s\.gguf was taken of 2 models/);
  assert.equal(loaded("/hub.js"), 1);
  const absent = await tried("hf:owner/nothing");
  assert.equal(absent.code, "NotFound");
  assert.match(
    absent.message,
    /https:\/\/huggingface\.co shows no model owner\/nothing.*it is private and cannot be had from here$/,
  );
  // A page has no variables.
  assert.match(
    (await tried("hf:owner/gated")).message,
    /owner\/gated is gated.*download the file there and load that$/,
  );
});
