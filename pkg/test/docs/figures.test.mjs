/** Figures in the documents are those of the reports in benches/results. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { median } from "../../../benches/median.mjs";
import { documents, figures, filled } from "../../../docs/scripts/figures.mjs";
import { read } from "./support.mjs";

test("figures are up to date: node docs/scripts/figures.mjs writes them", () => {
  for (const document of documents) assert.equal(filled(read(document)), read(document), document);
});

test("each figure stands in a document, and a changed one is noticed", () => {
  const text = documents.map(read).join("");
  for (const name of Object.keys(figures)) assert.ok(text.includes(`<!-- figures:${name} -->`), name);
  const wrong = read("README.md").replace(/[\d.]+ tokens\/s decode/, "99 tokens/s decode");
  assert.notEqual(wrong, read("README.md"));
  assert.equal(filled(wrong), read("README.md"));
});

test("a row of the table says the prompt that its report has", () => {
  const results = new URL("../../../benches/results/", import.meta.url);
  const all = readdirSync(results);
  let told = 0;
  for (const [, row, said] of read("docs/performance.md").matchAll(/^\| ([\w-]+) \| [^|]*?prompt (\d+)/gm)) {
    const file = all.findLast((name) => name.slice(11) === `${row}.json`);
    if (!file) continue;
    const { settings } = JSON.parse(read(`benches/results/${file}`));
    assert.equal(settings.prompt, Number(said), row);
    told++;
  }
  assert.ok(told > 5, `${told} rows`);
});

test("the median of an even count is between the two in the middle, in every bench", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  for (const name of readdirSync(new URL("../../../benches/", import.meta.url))) {
    if (!name.endsWith(".mjs") || name === "median.mjs") continue;
    assert.doesNotMatch(read(`benches/${name}`), /\ba - b\)\[[^\]]*(>> 1|\/ 2\))\]/, name);
  }
});
