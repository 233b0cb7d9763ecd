/** What pages need besides: isolation where no headers can be set, and the doctor. */
import assert from "node:assert/strict";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { launch } from "./browsers.mjs";
import {
  emptyFolderWithPage,
  expectAnswer,
  isolation,
  open,
  page,
  recipe,
  recipes,
  serve,
  serveFolder,
} from "./support.mjs";

const dist = "node_modules/ternlight/dist";

async function folderOf() {
  const folder = await emptyFolderWithPage();
  const program = path.join(folder, "program.js");
  await writeFile(program, (await readFile(program, "utf8")).replace('"ternlight"', `"./${dist}/index.js"`));
  return folder;
}

test("a service worker isolates pages whose host sends no headers", async (context) => {
  const folder = await folderOf();
  await copyFile(path.join(folder, dist, "isolate.js"), path.join(folder, "isolate.js"));
  const helper = await recipe("docs/guide/threads.md", "isolate.js");
  // The page is there twice; the first time it is about to be loaded again.
  const main = (await readFile(path.join(folder, "main.js"), "utf8")).replace(
    'program("./model/")',
    '(crossOriginIsolated ? program("./model/") : new Promise(() => {}))',
  );
  await writeFile(path.join(folder, "main.js"), main);
  await writeFile(path.join(folder, "index.html"), `${helper}${page("./main.js")}`);
  await writeFile(path.join(folder, "frame.html"), '<!doctype html><iframe src="./index.html"></iframe>');

  await context.test("and the page runs with threads", async (context) => {
    const asked = [];
    const policy = (await recipe("docs/guide/threads.md", "Content-Security-Policy:")).replace(/^.*?: |\n/g, "");
    const headers = { "content-security-policy": policy };
    const { printed } = await open(context, await serveFolder(context, folder, headers, asked));
    await expectAnswer(printed, { flavour: "threads-relaxed" });
    assert.equal(asked.filter((file) => file.endsWith("/index.html") || file === "/").length, 2);
  });

  await context.test("and a page that cannot be isolated is loaded once more and no more", async (context) => {
    const browser = await launch();
    context.after(() => browser.close());
    const asked = [];
    const url = await serveFolder(context, folder, {}, asked);
    const tab = await browser.newPage();
    await tab.goto(`${url}frame.html`);
    const loads = () => asked.filter((file) => file === "/index.html").length;
    const end = Date.now() + 20_000;
    while (loads() < 2 && Date.now() < end) await sleep(50);
    await sleep(1000);
    assert.equal(loads(), 2);
  });
});

test("every recipe for a host sends both headers", async () => {
  const opener = /cross-origin-opener-policy\W+(?:value\W+)?same-origin\b/i;
  const embedder = /cross-origin-embedder-policy\W+(?:value\W+)?require-corp\b/i;
  const all = (await recipes("docs/guide/threads.md")).filter((block) => /cross-origin/i.test(block));
  assert.equal(all.length, 9);
  for (const block of all) for (const header of [opener, embedder]) assert.match(block, header);
});

test("the doctor in a page", async (context) => {
  const folder = await folderOf();
  const script = `
    import { doctor } from "./${dist}/doctor.js";
    const output = document.querySelector("output");
    const address = new URLSearchParams(location.search).get("model") ?? "./model/model.safetensors";
    doctor(address).then(
      (report) => (output.textContent = JSON.stringify(report)),
      (error) => (output.textContent = error.stack),
    );`;
  await writeFile(path.join(folder, "main.js"), script);
  const files = path.join(folder, "public", "model");
  const other = async (context, headers) => {
    const server = await serve({ mounts: { "/": files }, headers });
    context.after(() => server.close());
    return `${server.url}model.safetensors`;
  };
  const look = async (context, headers, model) => {
    const url = await serveFolder(context, folder, headers);
    const { printed } = await open(context, model ? `${url}?model=${encodeURIComponent(model)}` : url);
    return JSON.parse(printed);
  };
  const levels = ({ advice }) => advice.map(({ level }) => level);

  await context.test("isolated", async (context) => {
    const report = await look(context, isolation);
    assert.match(report.runtime, /^Chrome \d+$/);
    assert.equal(report.isolated, true);
    assert.equal(report.flavour, "threads-relaxed");
    assert.equal(report.engineError, null);
    assert.ok(report.storage.quota > 0);
    assert.equal(report.source.format, "safetensors");
    assert.equal(report.source.cors, null);
    assert.ok(!levels(report).includes("error"), JSON.stringify(report.advice));
  });

  await context.test("not isolated", async (context) => {
    const report = await look(context, {});
    assert.equal(report.isolated, false);
    assert.equal(report.flavour, "single-relaxed");
    assert.ok(report.advice.some(({ level, text }) => level === "warning" && /Embedder-Policy/.test(text)));
  });

  await context.test("under a policy that forbids wasm", async (context) => {
    const report = await look(context, { "content-security-policy": "default-src 'self'" });
    assert.equal(report.simd, null);
    assert.equal(report.flavour, null);
    assert.match(report.advice[0].text, /wasm-unsafe-eval/);
  });

  await context.test("under a policy that forbids workers", async (context) => {
    const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'none'";
    const report = await look(context, { "content-security-policy": policy });
    assert.equal(report.simd, "relaxed");
    assert.ok(report.engineError);
    assert.match(report.advice[0].text, /worker-src/);
  });

  await context.test("a file of another origin that lets pages in", async (context) => {
    const headers = { "access-control-allow-origin": "*", "access-control-expose-headers": "content-range, etag" };
    const { source } = await look(context, {}, await other(context, headers));
    assert.equal(source.cors, true);
    assert.equal(source.range, true);
    assert.equal(source.validator, "ETag");
    assert.ok(source.size > 3e6);
  });

  await context.test("a file of another origin that does not", async (context) => {
    const report = await look(context, {}, await other(context, {}));
    assert.equal(report.source.cors, false);
    assert.match(report.advice[0].text, /Access-Control-Allow-Origin/);
  });
});
