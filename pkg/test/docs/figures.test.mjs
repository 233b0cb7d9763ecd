/** Figures in the documents are those of the reports in benches/results. */
import assert from "node:assert/strict";
import { test } from "node:test";
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
