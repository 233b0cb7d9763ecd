/** What a page keeps in the browser's own files: across closed tabs, and with two tabs at once. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { openInFirefox, openInWebKit } from "../package/browsers.mjs";
import { isolation, launch, page, serve } from "../package/support.mjs";
import { folderOf } from "./support/models.ts";
import { files, MIB, modelServer, WEIGHTS } from "./support/stuck.mjs";
import { listIn, loadIn, profileOf } from "./support/tabs.mjs";

const dist = fileURLToPath(new URL("../../dist/", import.meta.url));

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const profile = (context) => profileOf(context, browser);

const weightsOf = (list) => list.find((one) => one.url.endsWith(WEIGHTS));

test("a page that is closed half-way goes on where it was", { timeout: 120_000 }, async (context) => {
  const { url, asked, state } = await modelServer(context);
  const open = await profile(context);
  state.stuck = true;
  const first = await open();
  loadIn(first, url).catch(() => {});
  while (weightsOf(await listIn(first))?.kept !== 2 * MIB) await first.waitForTimeout(50);
  const inUse = first.evaluate(async (address) => {
    const { cache } = await import("/ternlight/index.js");
    return cache.delete(address).catch(({ name, code }) => `${name} ${code}`);
  }, url + WEIGHTS);
  assert.equal(await inUse, "EngineError InUse");
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

test("where storage is full the model loads all the same, and says so", { timeout: 120_000 }, async (context) => {
  const { url } = await modelServer(context);
  const open = await profile(context);
  const tab = await open();
  const devtools = await tab.context().newCDPSession(tab);
  const { origin } = new URL(tab.url());
  const all = Object.values(files).reduce((sum, { length }) => sum + length, 0);
  // Too little for the largest file, and enough for each of them but not for all.
  for (const quotaSize of [files[WEIGHTS].length - MIB, all - 50_000]) {
    await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize });
    const { logits, warnings } = await loadIn(tab, url);
    assert.equal(logits.length, 50);
    assert.match(warnings.join("\n"), /is not kept: /);
    for (const { size, kept, url } of await listIn(tab)) assert.equal(kept, size, url);
    await tab.evaluate(async () => (await import("/ternlight/index.js")).cache.delete());
  }
  await devtools.send("Storage.overrideQuotaForOrigin", { origin });
  assert.deepEqual((await loadIn(tab, url)).warnings, []);

  // What cannot be read any more is listed with what it takes, and replaced.
  await tab.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("ternlight");
    for await (const handle of folder.values()) {
      // What was measured of the kernels, which is perhaps being written.
      if (handle.name.startsWith("tuning-")) continue;
      const file = await handle.createWritable({ keepExistingData: true });
      await file.write({ type: "write", position: 0, data: "another format" });
      await file.close();
    }
  });
  const useless = await listIn(tab);
  assert.equal(useless.length, Object.keys(files).length);
  for (const { url, size, kept } of useless) assert.ok(url === "" && size > 0 && kept === 0);
  assert.deepEqual((await loadIn(tab, url)).warnings, []);
  assert.ok((await listIn(tab)).every(({ complete }) => complete));
});

test("Firefox keeps models too, and WebKit without storage loads all the same", {
  timeout: 400_000,
}, async (context) => {
  for (const [open, keeps] of [
    [openInFirefox, true],
    [openInWebKit, false],
  ]) {
    const { url, asked } = await modelServer(context);
    const program = `
      import { cache, load } from "/ternlight/index.js";
      const warnings = [];
      for (let i = 0; i < 2; i++) {
        const model = await load(${JSON.stringify(url)}, { threads: 1 });
        warnings.push(...model.info.warnings);
        await model.close();
      }
      const kept = (await cache.list()).reduce((sum, { kept }) => sum + kept, 0);
      document.querySelector("output").textContent = JSON.stringify({ warnings, kept });
    `;
    const texts = { "index.html": page("./main.js"), "main.js": program };
    const encoded = Object.entries(texts).map(([name, text]) => [name, new TextEncoder().encode(text)]);
    const folder = await folderOf(context, Object.fromEntries(encoded));
    const server = await serve({ mounts: { "/": folder, "/ternlight/": dist }, headers: isolation });
    context.after(() => server.close());
    const { printed } = await open(context, server.url);
    const all = Object.values(files).reduce((sum, { length }) => sum + length, 0);
    const { warnings, kept } = JSON.parse(printed);
    assert.deepEqual(warnings, []);
    // Its GTK port gives pages no files of their own.
    if (!keeps && kept === 0) continue;
    assert.equal(kept, all);
    assert.equal(asked.filter(({ method }) => method === "HEAD").length, Object.keys(files).length);
  }
});
