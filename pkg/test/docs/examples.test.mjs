/**
 * Every block of the documents in js, ts, html and sh runs, against the packed package. Addresses of hosts are those of a server
 * here. A comment before a block, `<!-- example: … -->`, says what it needs, parted by `; `:
 *
 *     prelude model       `model`, the demo model, loaded before and closed after
 *     prelude chat        the same with a model that has a chat template
 *     prints /PATTERN/    what stdout must match
 *     chat                a page with a form and an answer in `output`: it is asked twice
 *     choose FILE         a page with a file input: it is given that file
 *     not run here (WHY)  the reason is one of those listed below
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { copyFile, cp, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { launch } from "../package/browsers.mjs";
import { demoModel, emptyFolderWithPackage, host, isolation, run, serve } from "../package/support.mjs";
import { blocks, chat, documents, mounts, read, rewritten, root, tiny } from "./support.mjs";

/** Blocks that do not run, all of them. */
const NOT_RUN = {
  "README.md": ["make runs these tests", "make runs these tests"],
  "CONTRIBUTING.md": ["make runs these tests"],
  "docs/guide/batch.md": ["pkg/test/batch/command.test.ts runs it", "clients/batch/test/command.test.mjs runs it"],
  "docs/guide/deployment.md": [
    "pkg/test/package/recipes.test.mjs runs it",
    "pkg/test/package/recipes.test.mjs runs it",
  ],
  "docs/guide/edge.md": ["pkg/test/package/edge.test.mjs runs it in workerd with 128 MB"],
  "docs/guide/frameworks.md": [
    "clients/ai-sdk/test/documents.test.mjs runs it",
    "clients/ai-sdk/test/documents.test.mjs opens it",
    "clients/react/test/documents.test.mjs opens it",
    "clients/langchain/test/documents.test.mjs runs it",
    "clients/langchain/test/documents.test.mjs runs it",
  ],
  "docs/guide/formats.md": ["a benchmark that takes minutes"],
  "docs/guide/kv-cache.md": ["a benchmark that takes minutes"],
  "docs/guide/operating.md": [
    "pkg/test/package/executables.test.mjs runs it",
    "pkg/test/advise/advise.test.ts runs it",
  ],
  "docs/guide/profiling.md": [
    "a build of minutes, and a profiler",
    "a build of minutes, and a profiler",
    "a build of minutes, and a profiler",
  ],
  "docs/guide/chat-element.md": Array(2).fill("pkg/test/page/chat_element.test.mjs opens such pages"),
  "docs/guide/prompt-api.md": ["pkg/test/prompt_api/page.test.mjs runs such a program"],
  "docs/guide/clients.md": Array(5).fill("pkg/test/clients/guide.test.mjs runs it"),
  "docs/guide/server.md": [
    "pkg/test/server/serve.test.ts starts it",
    "pkg/test/clients/clients.test.mjs runs it",
    "pkg/test/clients/clients.test.mjs runs it",
    "pkg/test/clients/clients.test.mjs runs it",
  ],
  "docs/guide/threads.md": [
    "pkg/test/package/next.test.mjs builds and serves with it",
    "pkg/test/package/pages.test.mjs reads its headers, as Express is not installed",
    "pkg/test/package/bundlers.test.mjs serves with it",
    "pkg/test/package/pages.test.mjs opens a page with it",
  ],
  "docs/guide/loading.md": ["pkg/test/source/hub.test.ts asks a hub on loopback"],
  "docs/performance.md": ["a benchmark that takes minutes"],
};

/** What runs, and what else may stand in a document: configuration of servers, and plain text. */
const RUN = ["js", "ts", "html", "sh"];
const SHOWN = ["nginx", "apache", "caddy", "text", "json", "jsx", "toml", "python", "yaml"];

const all = documents.flatMap(blocks);
const reasons = (block) => block.needs.flatMap((need) => /^not run here \((.*)\)$/.exec(need)?.slice(1) ?? []);
const runs = (language) => all.filter((block) => block.language === language && reasons(block).length === 0);

const preludes = {
  model: 'import { load } from "ternlight";\nimport demo from "ternlight/demo";\nconst model = await load(demo);\n',
  chat: 'import { load } from "ternlight";\nconst model = await load("./model.gguf");\n',
};

let folder;
let server;
let browser;

before(async () => {
  folder = await emptyFolderWithPackage();
  await copyFile(tiny, path.join(folder, "model.gguf"));
  for (const name of ["folder", "bitnet-2b"]) await cp(demoModel, path.join(folder, name), { recursive: true });
  const book = await readFile(path.join(folder, "folder", "README.md"), "utf8");
  await writeFile(path.join(folder, "book.txt"), book.repeat(2));
  const served = mounts(documents.map(read));
  server = await serve({ mounts: { "/": folder, ...served }, headers: isolation });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const env = () => ({
  ...process.env,
  XDG_CACHE_HOME: path.join(folder, "cache"),
  PATH: `${path.join(folder, "node_modules", ".bin")}:${process.env.PATH}`,
});

/** A block's program with addresses that are here. */
function prepared({ code, name }) {
  const text = rewritten(code, server.url);
  const [foreign] = /\bhttps?:\/\/(?!localhost)[^\s"'`]+/.exec(text.replace(/^\s*(\/\/|#).*$/gm, "")) ?? [];
  assert.equal(foreign, undefined, `${name} names a host that is not here`);
  return text;
}

function checkOutput({ code, needs, name }, stdout) {
  if (/console\.log|stdout\.write|^npx /m.test(code)) assert.notEqual(stdout, "", `${name} prints nothing`);
  for (const need of needs) {
    const [, pattern] = /^prints \/(.*)\/$/.exec(need) ?? [];
    if (pattern) assert.match(stdout, new RegExp(pattern, "m"));
  }
}

test("blocks are of known languages, and those that do not run have a reason", () => {
  const found = {};
  for (const block of all) {
    assert.ok([...RUN, ...SHOWN].includes(block.language), `${block.name} is in ${block.language || "no language"}`);
    if (block.language === "json") JSON.parse(block.code);
    for (const why of reasons(block)) {
      found[block.document] = [...(found[block.document] ?? []), why];
      const [file] = /(pkg|clients)\/\S+\.mjs/.exec(why) ?? [];
      assert.ok(!file || existsSync(path.join(root, file)), `${block.name} names ${file}, which is not there`);
    }
  }
  assert.deepEqual(found, NOT_RUN);
});

test("what documents name of this repository is there", async () => {
  const makefile = await readFile(path.join(root, "Makefile"), "utf8");
  const cleaned = /^clean:\n\trm -rf (.*)$/m.exec(makefile)[1].split(" ");
  for (const document of documents) {
    const text = read(document);
    for (const [, target] of text.matchAll(/(?:^|`)make ([a-z]+)\b/gm)) {
      assert.match(makefile, new RegExp(`^${target}:`, "m"), `${document} names make ${target}`);
    }
    const files = /\b(?:pkg|src|tests|benches|docs|scripts|fuzz|www|constrain)\/[\w./-]+\w\/?/g;
    for (const [, code] of text.replace(/^```[\s\S]*?^```$/gm, "").matchAll(/`([^`\n]+)`/g)) {
      for (const [file] of code.matchAll(files)) {
        // What `make clean` deletes is there only once it was built.
        const there = existsSync(path.join(root, file)) || cleaned.includes(file);
        assert.ok(there, `${document} names ${file}, which is not there`);
      }
    }
  }
});

test("programs", async (context) => {
  for (const block of [...runs("js"), ...runs("ts")]) {
    await context.test(block.name, { timeout: 120_000 }, async () => {
      const [prelude] = block.needs.flatMap((need) => /^prelude (\w+)$/.exec(need)?.slice(1) ?? []);
      const close = (prelude || /const model =/.test(block.code)) && !/model\.close\(/.test(block.code);
      const program = `${preludes[prelude] ?? ""}${prepared(block)}${close ? "await model.close();\n" : ""}`;
      const file = `${block.name.replace(/\W+/g, "-")}.${block.language === "ts" ? "mts" : "mjs"}`;
      await writeFile(path.join(folder, file), program);
      const { stdout, stderr } = await run(host("node24/bin/node"), [file], { cwd: folder, env: env() });
      assert.equal(stderr, "");
      checkOutput(block, stdout);
    });
  }
});

test("commands", async (context) => {
  for (const block of runs("sh")) {
    await context.test(block.name, { timeout: 120_000 }, async () => {
      // The package's command is in PATH: npx would look for it longer.
      const script = `set -e\nnpx() { "$@"; }\n${prepared(block)}`;
      const { stdout } = await run("bash", ["-c", script], { cwd: folder, env: env(), maxBuffer: 1 << 26 });
      checkOutput(block, stdout);
    });
  }
});

test("pages", async (context) => {
  const imports = {
    ternlight: "/node_modules/ternlight/dist/index.js",
    "ternlight/demo": "/node_modules/ternlight/dist/demo.js",
  };
  const map = `<script type="importmap">${JSON.stringify({ imports })}</script>\n`;
  for (const block of runs("html")) {
    await context.test(block.name, { timeout: 60_000 }, async () => {
      const file = `${block.name.replace(/\W+/g, "-")}.html`;
      await writeFile(path.join(folder, file), map + prepared(block));
      const page = await browser.newPage();
      const problems = [];
      page.on("pageerror", (error) => problems.push(error.message));
      try {
        await page.goto(server.url + file);
        const chosen = block.needs.flatMap((need) => /^choose (.*)$/.exec(need)?.slice(1) ?? []);
        if (chosen.length > 0) await page.setInputFiles("input[type=file]", path.join(folder, chosen[0]));
        if (block.needs.includes("chat")) await chat(page);
        await page.waitForFunction(() => document.querySelector("output").textContent !== "");
        assert.deepEqual(problems, []);
      } catch (error) {
        error.message += ` (${problems.join("; ") || "the page tells of no problem"})`;
        throw error;
      } finally {
        await page.close();
      }
    });
  }
});
