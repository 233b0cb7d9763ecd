/** The README's first examples where most people meet them: each runtime, and each version of Vite. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { blocks, chat, mounts, read, rewritten } from "../docs/support.mjs";
import { launch } from "./browsers.mjs";
import { emptyFolderWithPackage, host, recipe, run, serve, startServer } from "./support.mjs";

const example = (language) => blocks("README.md").find((block) => block.language === language).code;

/** A server of the models that the README names. Pages of other origins may read them. */
async function models(context) {
  const headers = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "content-range, etag",
    "cross-origin-resource-policy": "cross-origin",
  };
  const server = await serve({ mounts: mounts([read("README.md")]), headers });
  context.after(() => server.close());
  return server.url;
}

const runtimes = [
  ["Node 20", "node20/bin/node"],
  ["Node 24", "node24/bin/node"],
  ["Deno", ".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"],
  ["Bun", ".bin/bun"],
];

test("the README's program", async (context) => {
  const folder = await emptyFolderWithPackage();
  await writeFile(path.join(folder, "chat.mjs"), rewritten(example("js"), await models(context)));
  const env = { ...process.env, XDG_CACHE_HOME: path.join(folder, "cache") };
  for (const [name, program, ...args] of runtimes) {
    await context.test(name, { timeout: 60_000 }, async () => {
      const { stdout, stderr } = await run(host(program), [...args, "chat.mjs"], { cwd: folder, env });
      assert.match(stdout, /^[\s\S]+\n\d+ tokens\/s\n$/);
      assert.equal(stderr, "");
    });
  }
});

test("the measures of an answer, in each runtime", async (context) => {
  const folder = await emptyFolderWithPackage();
  await writeFile(path.join(folder, "timing.mjs"), await recipe("docs/guide/command-line.md", "userTiming: true"));
  for (const [name, bin, ...args] of runtimes) {
    await context.test(name, { timeout: 60_000 }, async () => {
      const { stdout, stderr } = await run(host(bin), [...args, "timing.mjs"], { cwd: folder });
      for (const line of [/^load engine \d/m, /^request \d+ prefill 4 \d/m, /^request \d+ decode 1 \d/m]) {
        assert.match(stdout, line);
      }
      assert.equal(stderr, "");
    });
  }
});

test("the README's page", async (context) => {
  const folder = await emptyFolderWithPackage();
  await writeFile(path.join(folder, "index.html"), rewritten(example("html"), await models(context)));
  const browser = await launch();
  context.after(() => browser.close());
  for (const vite of ["vite5", "vite6", "vite7", "vite8"]) {
    const bin = host(`${vite}/bin/vite.js`);
    await run(process.execPath, [bin, "build"], { cwd: folder });
    for (const command of ["dev", "preview"]) {
      await context.test(`${vite} ${command}`, { timeout: 60_000 }, async (context) => {
        const url = await startServer(context, process.execPath, [bin, command, "--host", "127.0.0.1"], {
          cwd: folder,
        });
        const page = await browser.newPage();
        context.after(() => page.close());
        const failures = [];
        page.on("pageerror", (error) => failures.push(error.message));
        page.on("requestfailed", (request) => failures.push(`failed: ${request.url()}`));
        page.on("response", (response) => {
          // Browsers ask for an icon that nobody promised.
          if (response.status() >= 400 && !response.url().endsWith("/favicon.ico")) failures.push(response.url());
        });
        await page.goto(url);
        await chat(page);
        assert.deepEqual(failures, []);
      });
    }
  }
});
