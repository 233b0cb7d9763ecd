/** Tools of a model whose context is shorter than the windows that they take. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { calibrate, check, compare, prune, quality, slice } from "ternlight/quality";
import { readGguf } from "../source/support/split.ts";
import { bytesOf, demoText, rebuilt, trained } from "./support/craft.ts";

const CONTEXT = 48;
const demo = new URL("../../models/ternlight-demo/", import.meta.url);
const text = demoText().slice(0, 1200);
const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];

const folder = async () =>
  Object.fromEntries(
    await Promise.all(
      names.map(async (name) => {
        const bytes = await readFile(new URL(name, demo));
        const config = () => JSON.stringify({ ...JSON.parse(bytes.toString()), max_position_embeddings: CONTEXT });
        return [name, new Blob([name === "config.json" ? config() : new Uint8Array(bytes)])];
      }),
    ),
  );

function gguf(): Uint8Array<ArrayBuffer> {
  const file = trained();
  const [key] = new TextDecoder("latin1").decode(readGguf(file).metadata).match(/[\w.-]+\.context_length/)!;
  return rebuilt(file, { keys: { [key]: CONTEXT } });
}

test("quality reports the windows that it used, and takes the shorter of two models' contexts", async () => {
  const short = await folder();
  const options = { kv: ["f32"], tokens: 200 } as const;
  assert.equal((await quality(short, text, { ...options, window: 1000 })).window, CONTEXT);
  for (const [source, against] of [[short, demo] as const, [demo, short] as const]) {
    const { window, rows, reference } = await quality(source, text, { ...options, against });
    assert.deepEqual([window, rows[0]!.kl, reference.perplexity], [CONTEXT, 0, rows[0]!.perplexity]);
  }
});

test("calibrate, prune, slice and check take the context that there is", async () => {
  const calibrated = await calibrate(await folder(), { texts: [text], samples: 3, budget: 5, tokens: 64 });
  assert.equal(calibrated.report.window, CONTEXT);
  const file = gguf();
  const { unchecked } = await check(file);
  assert.ok(!unchecked.some(({ rule }) => rule === "rope"), JSON.stringify(unchecked));
  const pruned = await prune(file, { targetLayers: 5, texts: [text], tokens: 200 });
  assert.equal(pruned.kept.length, 5);
  const sliced = await slice(file, { keep: 2048, text });
  const { after } = await compare(file, await bytesOf(sliced.file), text);
  assert.ok(after.kl! >= 0 && after.tokens > CONTEXT, JSON.stringify(after));
});
