import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { reference } from "../../scripts/reference.mjs";

test("what is generated from the tables is up to date", async () => {
  for (const [name, text] of Object.entries(await reference())) {
    const file = new URL(`../../../${name}`, import.meta.url);
    assert.equal(await readFile(file, "utf8"), text, `${name}: run node pkg/scripts/reference.mjs`);
  }
});
