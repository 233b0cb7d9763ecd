import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { emptyFolderWithPage, expectAnswer, isolation, open, serveFolder } from "./support.mjs";

test("a page without a bundler", async (context) => {
  const folder = await emptyFolderWithPage(context);
  const program = path.join(folder, "program.js");
  const address = "./node_modules/ternlight/dist/index.js";
  await writeFile(program, (await readFile(program, "utf8")).replace('"ternlight"', `"${address}"`));

  const csp = { "content-security-policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'" };
  for (const [name, headers, flavour] of [
    ["isolated", isolation, "threads-relaxed"],
    ["not isolated", {}, "single-relaxed"],
    ["isolated, under a strict policy", { ...isolation, ...csp }, "threads-relaxed"],
    ["not isolated, under a strict policy", csp, "single-relaxed"],
  ]) {
    await context.test(name, async (context) => {
      const { printed } = await open(context, await serveFolder(context, folder, headers));
      expectAnswer(printed, { flavour });
    });
  }
});
