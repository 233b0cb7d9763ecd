/** The extension of examples/, loaded into Chromium as a developer does, its button pressed. */
import assert from "node:assert/strict";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { emptyFolderWithPackage, launch, run, serve } from "../package/support.mjs";

const example = fileURLToPath(new URL("../../../examples/extension/", import.meta.url));

test("extension", { timeout: 120_000 }, async (context) => {
  const folder = await emptyFolderWithPackage();
  await cp(example, folder, { recursive: true });
  await run(process.execPath, ["build.mjs"], { cwd: folder });
  await rm(path.join(folder, "node_modules"), { recursive: true });

  const pages = await mkdtemp(path.join(tmpdir(), "ternlight-pages-"));
  context.after(() => rm(pages, { recursive: true, force: true }));
  const text = "Once upon a time there was a king who had three sons.";
  await writeFile(path.join(pages, "index.html"), `<!doctype html><title>A page</title><p>${text}</p>`);
  const server = await serve({ mounts: { "/": pages }, headers: { "content-security-policy": "default-src 'none'" } });
  context.after(() => server.close());

  const browser = await launch(path.join(pages, "profile"), { extensions: true });
  context.after(() => browser.close());
  const started = browser.waitForEvent("serviceworker");
  const session = await browser.browser().newBrowserCDPSession();
  const { id } = await session.send("Extensions.loadUnpacked", { path: folder });
  // A click before the worker listens is lost.
  const worker = await started;
  while (!(await worker.evaluate(() => chrome.action.onClicked.hasListeners())));
  const page = await browser.newPage();
  await page.goto(server.url);
  const { targetInfos } = await session.send("Target.getTargets", { filter: [{ type: "tab" }] });
  const { targetId } = targetInfos.find(({ url }) => url === server.url);
  await session.send("Extensions.triggerAction", { id, targetId });
  const dialog = page.getByRole("dialog");
  await dialog.waitFor({ timeout: 60_000 });
  const summary = await dialog.innerText();
  assert.ok(summary.length > 60 && !summary.startsWith("No summary"), summary);
});
