/** What README and the guide to frameworks show of this package, as it stands there. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runPrograms } from "../../scripts/testing.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));

for (const [document, programs] of [
  ["clients/langchain/README.md", 1],
  ["docs/guide/frameworks.md", 2],
]) {
  test(document, async (context) => {
    assert.equal(await runPrograms(context, document, "@ternlight/langchain", folder), programs);
  });
}
