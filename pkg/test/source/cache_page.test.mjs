/** What a page keeps in the browser's own files: across closed tabs, and with two tabs at once. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { isolation, launch, page, serve } from "../package/support.mjs";
import { folderOf } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";

const MIB = 1 << 20;
const WEIGHTS = "model.safetensors";
const dist = fileURLToPath(new URL("../../dist/", import.meta.url));
const demo = fileURLToPath(new URL("../../models/ternlight-demo/", import.meta.url));

let browser;
let files;
before(async () => {
  browser = await launch();
  const names = (await readdir(demo)).filter((name) => /\.(json|safetensors)$/.test(name));
  files = Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, new Uint8Array(await readFile(path.join(demo, name)))])),
  );
});
after(() => browser?.close());

const tag = (name) => `"${createHash("sha256").update(files[name]).digest("hex").slice(0, 8)}"`;

/** Another origin's server, as models have; `stuck` sends no more than two megabytes of the weights. */
async function modelServer(context) {
  const state = { stuck: false };
  const announce = (headers, name) => ({
    ...headers,
    ...(files[name] && { etag: tag(name) }),
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "etag, content-range",
    "cross-origin-resource-policy": "cross-origin",
  });
  const { url, asked } = await serveFiles(context, files, {
    announce,
    answer(request, response) {
      const from = Number(/=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (!state.stuck || from < MIB || request.method !== "GET") return false;
      const { length } = files[WEIGHTS];
      response.writeHead(206, announce({ "content-range": `bytes ${from}-${length - 1}/${length}` }, WEIGHTS));
      response.write(files[WEIGHTS].subarray(from, 2 * MIB + 1000));
      return true;
    },
  });
  return { url, asked, state };
}

/** A profile of its own with a page that has nothing on it. */
async function profile(context) {
  const index = new TextEncoder().encode(page("./empty.js"));
  const folder = await folderOf(context, { "index.html": index, "empty.js": new Uint8Array() });
  const server = await serve({ mounts: { "/": folder, "/ternlight/": dist }, headers: isolation });
  const tabs = await browser.newContext();
  context.after(() => Promise.all([tabs.close(), server.close()]));
  return async () => {
    const tab = await tabs.newPage();
    await tab.goto(server.url);
    return tab;
  };
}

/** Loads in a page, and answers with what the model says. */
const loadIn = (tab, url) =>
  tab.evaluate(async (url) => {
    const { load } = await import("/ternlight/index.js");
    const model = await load(url, { threads: 1 });
    const [logits] = await model.logits([1, 5, 9, 2]);
    await model.close();
    return { logits: [...logits.slice(0, 50)], warnings: model.info.warnings };
  }, url);

const listIn = (tab) =>
  tab.evaluate(async () => {
    const { cache } = await import("/ternlight/index.js");
    return cache.list();
  });

const weightsOf = (list) => list.find((one) => one.url.endsWith(WEIGHTS));

test("a page that is closed half-way goes on where it was", { timeout: 120_000 }, async (context) => {
  const { url, asked, state } = await modelServer(context);
  const open = await profile(context);
  state.stuck = true;
  const first = await open();
  loadIn(first, url).catch(() => {});
  while (weightsOf(await listIn(first))?.kept !== 2 * MIB) await first.waitForTimeout(50);
  await first.close();

  state.stuck = false;
  asked.length = 0;
  const second = await open();
  const answer = await loadIn(second, url);
  assert.deepEqual(answer.warnings, []);
  const about = () => asked.filter(({ path }) => path === WEIGHTS).map(({ method, range }) => range ?? method);
  assert.deepEqual(about(), ["HEAD", `bytes=${2 * MIB}-${files[WEIGHTS].length - 1}`]);
  await second.close();

  asked.length = 0;
  const third = await open();
  assert.deepEqual(await loadIn(third, url), answer);
  const found = asked.filter(({ status }) => status !== 404);
  assert.deepEqual(new Set(found.map(({ method }) => method)), new Set(["HEAD"]));
  assert.equal(found.length, Object.keys(files).length);

  const list = await listIn(third);
  assert.ok(list.every(({ complete }) => complete));
  assert.equal(weightsOf(list).size, files[WEIGHTS].length);
  const deleted = await third.evaluate(async (url) => {
    const { cache } = await import("/ternlight/index.js");
    return [await cache.delete(url), (await cache.list()).length];
  }, url);
  assert.deepEqual(deleted, [Object.keys(files).length, 0]);
});

test("two tabs that load at once both have the model, and one keeps it", { timeout: 120_000 }, async (context) => {
  const { url, asked } = await modelServer(context);
  const open = await profile(context);
  const tabs = [await open(), await open()];
  const [one, other] = await Promise.all(tabs.map((tab) => loadIn(tab, url)));
  assert.deepEqual(one.logits, other.logits);
  asked.length = 0;
  const again = await Promise.all(tabs.map((tab) => loadIn(tab, url)));
  for (const { logits, warnings } of again) assert.deepEqual([logits, warnings], [one.logits, []]);
  assert.ok(
    asked.every(({ method, status }) => method === "HEAD" || status === 404),
    "both read what is kept",
  );
});
