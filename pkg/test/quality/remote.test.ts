/** Tools over a model on a server: it is fetched once, with a cache and without. */

import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { calibrate, check, prune, quality, slice } from "ternlight/quality";
import { folderOf } from "../source/support/models.ts";
import { serveFiles } from "../source/support/server.ts";
import { bytesOf, demoText, trained } from "./support/craft.ts";

const file = trained();
const text = demoText().slice(0, 2000);

/** How many times its size a tool fetches of the demo model. */
async function times(context: TestContext, work: (url: string) => Promise<unknown>): Promise<number> {
  const announce = (headers: Record<string, string>) => ({ ...headers, etag: '"one"' });
  const { url, asked } = await serveFiles(context, { "model.gguf": file }, { announce });
  await work(`${url}model.gguf`);
  return asked.reduce((sum, { sent }) => sum + sent, 0) / file.length;
}

for (const kept of [true, false]) {
  test(`every tool fetches a model once, ${kept ? "with an empty cache" : "without a cache"}`, async (context) => {
    const folder = await folderOf(context, {});
    let run = 0;
    const load = () => ({ cache: kept ? path.join(folder, String(run++)) : false, threads: 1 }) as const;
    const pruned = await times(context, async (url) => {
      const options = { targetLayers: 5, texts: [text], tokens: 64, load: load() };
      const { file: made, kept: layers } = await prune(url, options);
      assert.equal((await bytesOf(made)).length, made.size);
      assert.equal(layers.length, 5);
    });
    assert.ok(pruned < 1.2, `prune: ${pruned}`);
    const checked = await times(context, async (url) => {
      // The demo model has no template; weights and rope, which are read again, were looked at.
      const { unchecked } = await check(url, { load: load() });
      const rules = ["template-eos", "generation-prompt", "eos-unwritten", "bos-twice"];
      assert.deepEqual(new Set(unchecked.map(({ rule }) => rule)), new Set(rules));
    });
    assert.ok(checked < 1.2, `check: ${checked}`);
    const sliced = await times(context, async (url) => {
      const { file: made } = await slice(url, { keep: 2048, text, load: load() });
      await bytesOf(made);
    });
    assert.ok(sliced < 1.2, `slice: ${sliced}`);
    const measured = await times(context, async (url) => {
      const { rows } = await quality(url, text, { kv: ["f32", "q8"], tokens: 64, load: load() });
      assert.equal(rows.length, 2);
    });
    assert.ok(measured < 1.2, `quality: ${measured}`);
    const calibrated = await times(context, async (url) => {
      const { bytesBefore } = await calibrate(url, { texts: [text], samples: 2, tokens: 64, load: load() });
      assert.equal(bytesBefore, file.length);
    });
    assert.ok(calibrated < 1.2, `calibrate: ${calibrated}`);
  });
}
