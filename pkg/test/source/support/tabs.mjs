/** Tabs of a browser with a profile of their own, and what the package does in them. */

import { fileURLToPath } from "node:url";
import { isolation, page, serve } from "../../package/support.mjs";
import { folderOf } from "./models.ts";

const dist = fileURLToPath(new URL("../../../dist/", import.meta.url));

/** Opens tabs with a page that has nothing on it, beside further files by their names. */
export async function profileOf(context, browser, files = {}) {
  const encoded = Object.entries({ "index.html": page("./empty.js"), "empty.js": "", ...files });
  const folder = await folderOf(
    context,
    Object.fromEntries(encoded.map(([name, text]) => [name, new TextEncoder().encode(text)])),
  );
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
export const loadIn = (tab, url, options = {}) =>
  tab.evaluate(
    async ({ url, options }) => {
      const { load } = await import("/ternlight/index.js");
      const model = await load(url, { threads: 1, ...options });
      const [logits] = await model.logits([1, 5, 9, 2]);
      await model.close();
      return { logits: [...logits.slice(0, 50)], warnings: model.info.warnings };
    },
    { url, options },
  );

export const listIn = (tab) =>
  tab.evaluate(async () => {
    const { cache } = await import("/ternlight/index.js");
    return cache.list();
  });
