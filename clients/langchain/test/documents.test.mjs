/** What README and the guide to frameworks show of this package, as it stands there. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runPrograms } from "../../scripts/testing.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));

for (const document of ["clients/langchain/README.md", "docs/guide/frameworks.md"]) {
  test(document, async (context) => {
    assert.equal(await runPrograms(context, document, "@ternlight/langchain", folder), 1);
  });
}
