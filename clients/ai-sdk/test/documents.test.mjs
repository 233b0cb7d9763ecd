/** What README and the guide to frameworks show of this package, as it stands there. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ask, examples, openPage, runPrograms, shown } from "../../scripts/testing.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));

for (const document of ["clients/ai-sdk/README.md", "docs/guide/frameworks.md"]) {
  test(`programs of ${document}`, async (context) => {
    assert.equal(await runPrograms(context, document, "@ternlight/ai-sdk", folder), 1);
  });

  test(`pages of ${document}`, async (context) => {
    const pages = examples(document, "jsx", "@ternlight/ai-sdk");
    assert.equal(pages.length, 1);
    for (const { code, mounts } of pages) {
      const { page, problems } = await openPage(context, shown(code, folder), { mounts });
      await ask(page);
      assert.deepEqual(problems, []);
    }
  });
}
