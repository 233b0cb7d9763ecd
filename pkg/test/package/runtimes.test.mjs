/** The packed package in each runtime there is: the same words, ids and bits everywhere. The table of docs/guide/threads.md says what is found here. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { open, openInFirefox, openInWebKit } from "./browsers.mjs";
import {
  emptyFolderWithPackage,
  emptyFolderWithPage,
  expectAnswer,
  host,
  inTwo,
  isolation,
  recipe,
  run,
  serveFolder,
} from "./support.mjs";

/** Milliseconds for a program: other work on the machine makes its threads wait for each other. */
const PATIENCE = 240_000;

test("programs", async (context) => {
  const folder = await emptyFolderWithPackage();
  const print = (options) =>
    `import { program } from "./program.js";\nconsole.log(await program("node_modules/ternlight/models/ternlight-demo/", ${options}));\n`;
  await writeFile(path.join(folder, "print.js"), print("{}"));
  await writeFile(path.join(folder, "print_split.js"), print(JSON.stringify(inTwo)));
  for (const [name, command, flavour] of [
    ["Node 20", ["node20/bin/node"], "threads-simd128"],
    ["Node 24", ["node24/bin/node"], "threads-relaxed"],
    ["Deno", [".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"], "threads-relaxed"],
    ["Bun", [".bin/bun"], "threads-relaxed"],
  ]) {
    await context.test(name, { timeout: PATIENCE }, async () => {
      const [program, ...args] = command;
      const { stdout, stderr } = await run(host(program), [...args, "print.js"], { cwd: folder });
      await expectAnswer(stdout, { flavour });
      assert.equal(stderr, "");
    });
    await context.test(`${name}, split over two memories`, { timeout: PATIENCE }, async () => {
      const [program, ...args] = command;
      const { stdout, stderr } = await run(host(program), [...args, "print_split.js"], { cwd: folder });
      await expectAnswer(stdout, { flavour, parts: 2 });
      assert.equal(stderr, "");
    });
  }
});

test("a program that closes nothing ends", async (context) => {
  const folder = await emptyFolderWithPackage();
  const program = `import { load } from "ternlight";
    const model = await load("node_modules/ternlight/models/ternlight-demo/", { threads: 2 });
    console.log((await model.generate("Once", { maxTokens: 3 }).text()).length > 0);`;
  await writeFile(path.join(folder, "open.js"), program);
  for (const [name, [command, ...args]] of [
    ["Node 24", ["node24/bin/node"]],
    ["Deno", [".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"]],
    ["Bun", [".bin/bun"]],
  ]) {
    await context.test(name, { timeout: PATIENCE }, async () => {
      const { stdout } = await run(host(command), [...args, "open.js"], { cwd: folder });
      assert.equal(stdout, "true\n");
    });
  }
});

test("pages without a bundler", async (context) => {
  const folder = await emptyFolderWithPage();
  const program = path.join(folder, "program.js");
  const address = "./node_modules/ternlight/dist/index.js";
  await writeFile(program, (await readFile(program, "utf8")).replace('"ternlight"', `"${address}"`));

  // WebKit tells pages of four cores at least.
  const webkitCores = Math.max(4, navigator.hardwareConcurrency);
  // Wasm, and no eval; workers from here; nothing from a blob.
  const policy = (await recipe("docs/guide/threads.md", "Content-Security-Policy:")).replace(/^.*?: |\n/g, "");
  assert.match(policy, /^default-src 'self'; script-src 'self' 'wasm-unsafe-eval'$/);
  const csp = { "content-security-policy": policy };
  for (const [name, open, simd, cores] of [
    ["Chromium", openInChromium, "relaxed"],
    ["Firefox", openInFirefox, "relaxed"],
    ["WebKit", openInWebKit, "simd128", webkitCores],
  ]) {
    for (const [kind, headers, threads] of [
      ["isolated, under a strict policy", { ...isolation, ...csp }, "threads"],
      ["not isolated, under a strict policy", csp, "single"],
      ["not isolated", {}, "single"],
    ]) {
      await context.test(`${name}, ${kind}`, async (context) => {
        const asked = [];
        const { printed } = await open(context, await serveFolder(context, folder, headers, asked));
        const flavour = `${threads}-${simd}`;
        await expectAnswer(printed, { flavour, cores });
        // Since the page was opened last.
        const files = asked.slice(asked.lastIndexOf("/")).map((file) => path.basename(file));
        const builds = files.filter((file) => file.endsWith(".wasm"));
        assert.deepEqual(builds, [`${flavour}.wasm`, "constrain.wasm"], "another build was fetched");
      });
    }
  }
});

test("pages split a model over two memories", async (context) => {
  const folder = await emptyFolderWithPage();
  const program = path.join(folder, "program.js");
  const address = "./node_modules/ternlight/dist/index.js";
  await writeFile(program, (await readFile(program, "utf8")).replace('"ternlight"', `"${address}"`));
  const main = path.join(folder, "main.js");
  const loading = (await readFile(main, "utf8")).replace('"./model/"', `"./model/", ${JSON.stringify(inTwo)}`);
  await writeFile(main, loading);
  const webkitCores = Math.max(4, navigator.hardwareConcurrency);
  for (const [name, open, simd, cores] of [
    ["Chromium", openInChromium, "relaxed"],
    ["Firefox", openInFirefox, "relaxed"],
    ["WebKit", openInWebKit, "simd128", webkitCores],
  ]) {
    for (const [kind, headers, threads] of [
      ["isolated", isolation, "threads"],
      ["not isolated", {}, "single"],
    ]) {
      await context.test(`${name}, ${kind}`, async (context) => {
        const { printed } = await open(context, await serveFolder(context, folder, headers));
        await expectAnswer(printed, { flavour: `${threads}-${simd}`, cores, parts: 2 });
      });
    }
  }
});

const openInChromium = open;
