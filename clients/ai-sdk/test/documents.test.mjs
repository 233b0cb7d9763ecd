/** What README and the guide to frameworks show of this package, as it stands there. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ask, examples, openPage, serve, shown } from "../../scripts/testing.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));

for (const document of ["clients/ai-sdk/README.md", "docs/guide/frameworks.md"]) {
  test(`programs of ${document}`, async (context) => {
    const [{ mounts }] = examples(document, "js", "@ternlight/ai-sdk");
    const server = await serve({ mounts });
    context.after(() => server.close());
    const programs = examples(document, "js", "@ternlight/ai-sdk", server.url);
    assert.equal(programs.length, 1);
    for (const { code } of programs) {
      const args = ["--input-type=module", "--eval", code];
      const env = { ...process.env, XDG_CACHE_HOME: "/nonexistent" };
      const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder, env });
      assert.notEqual(stdout.trim(), "");
    }
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
