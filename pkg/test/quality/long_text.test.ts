/** Texts that are longer than what a tokenizer takes at once. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import { quality, slice } from "ternlight/quality";
import { partsOf } from "../../src/text/parts.ts";
import { demoText, trained } from "./support/craft.ts";

const demo = new URL("../../models/ternlight-demo/", import.meta.url);
const page = demoText().slice(0, 4000);
const long = `${page}\n`.repeat(Math.ceil((4.1 * 2 ** 20) / page.length));

test("a text is cut at the ends of lines, else between characters", () => {
  const cases: [string, string[]][] = [
    ["", []],
    ["abcd", ["abcd"]],
    ["ab\ncd\nef", ["ab\n", "cd\n", "ef"]],
    ["a\n\nbcde", ["a\n\n", "bcde"]],
    ["abcdef", ["abcd", "ef"]],
    ["abc😀d", ["abc", "😀d"]],
  ];
  for (const [text, parts] of cases) assert.deepEqual([...partsOf(text, 4)], parts);
});

test("quality, slice and perplexity take a long text", { timeout: 120_000 }, async () => {
  const options = { kv: ["f32"], tokens: 64 } as const;
  const [{ rows }, short] = [await quality(demo, long, options), await quality(demo, page, options)];
  assert.equal(rows[0]!.perplexity, short.rows[0]!.perplexity);
  const { coverage, heldOut } = await slice(trained(), { keep: 2048, text: long });
  assert.ok(coverage! > 0.5 && heldOut!.before > 1e5, JSON.stringify({ coverage, heldOut }));
  const model = await load(demo);
  // All of it takes minutes: what counts is that it is not refused.
  await assert.rejects(model.perplexity(long, { signal: AbortSignal.timeout(2000) }), { name: "TimeoutError" });
  await model.close();
});
