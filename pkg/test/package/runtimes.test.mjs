import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { emptyFolderWithPackage, expectAnswer, host, run } from "./support.mjs";

test("the tarball works in an empty folder", async (context) => {
  const folder = await emptyFolderWithPackage(context);
  await writeFile(
    path.join(folder, "print.js"),
    'import { program } from "./program.js";\nconsole.log(await program("node_modules/ternlight/models/ternlight-demo/"));\n',
  );
  for (const [name, command, flavour] of [
    ["Node 20", ["node20/bin/node"], "threads-simd128"],
    ["Node 24", ["node24/bin/node"], "threads-relaxed"],
    ["Deno", [".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"], "threads-relaxed"],
    ["Bun", [".bin/bun"], "threads-relaxed"],
  ]) {
    await context.test(name, { timeout: 60_000 }, async () => {
      const [program, ...args] = command;
      const { stdout, stderr } = await run(host(program), [...args, "print.js"], { cwd: folder });
      expectAnswer(stdout, { flavour });
      assert.equal(stderr, "");
    });
  }
});
