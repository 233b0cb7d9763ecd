/** The blocks of docs/guide/clients.md, run as they stand against a server; its address alone is put in. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { runtimes, serve } from "../server/support/command.ts";

const run = promisify(execFile);
const guide = new URL("../../../docs/guide/clients.md", import.meta.url);
const BLOCK = /guide\.test\.mjs runs it\) -->\n```(js|sh)\n([\s\S]*?)```/g;

test("every client of the guide gets the model's answer", async (context) => {
  const { url } = await serve(context);
  const blocks = Array.from((await readFile(guide, "utf8")).matchAll(BLOCK), ([, language, text]) => [language, text]);
  assert.equal(blocks.length, 5);
  const [node] = runtimes["Node 24"];
  for (const [i, [language, text]] of blocks.entries()) {
    const program = text.replaceAll("http://localhost:8000", url);
    // Beside the clients, so that it finds them.
    const file = fileURLToPath(new URL(`guide-${process.pid}-${i}.mjs`, import.meta.url));
    await writeFile(file, program);
    try {
      const { stdout } = await (language === "js" ? run(node, [file]) : run("bash", ["-ec", program]));
      assert.match(stdout, / there lived a man who had a wife/, program);
    } finally {
      await rm(file);
    }
  }
});
