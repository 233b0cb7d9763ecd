/** What README and the guide to frameworks show of this package, as it stands there. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ask, examples, openPage, shown } from "../../scripts/testing.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));

for (const document of ["clients/react/README.md", "docs/guide/frameworks.md"]) {
  test(document, async (context) => {
    const pages = examples(document, "jsx", "@ternlight/react");
    assert.equal(pages.length, 1);
    for (const { code, mounts } of pages) {
      const { page, problems } = await openPage(context, shown(code, folder), { mounts });
      await ask(page);
      assert.deepEqual(problems, []);
    }
  });
}
