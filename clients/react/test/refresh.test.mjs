/** Fast refresh, with the runtime that development servers use, and hydration of what a server has rendered; with React 18 and 19. */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openPage } from "../../scripts/testing.mjs";

const tests = fileURLToPath(new URL("../../../pkg/test/", import.meta.url));
const refresh = path.join(tests, "hosts/node_modules/next/dist/compiled/react-refresh");
const react18 = path.join(tests, "clients/node_modules");
const reacts = {
  18: { react: path.join(react18, "react"), "react-dom": path.join(react18, "react-dom") },
  19: {},
};
const entry = fileURLToPath(new URL("./refresh.jsx", import.meta.url));

async function open(context, version, query = "") {
  const alias = { ...reacts[version], "react-refresh": refresh };
  const { page, problems } = await openPage(context, entry, { alias, query });
  const engines = () => page.workers().filter((worker) => /worker\.js/.test(worker.url())).length;
  await page.waitForFunction(() => globalThis.seen?.status === "ready");
  assert.equal(await page.evaluate(() => globalThis.version.split(".")[0]), version);
  return { page, problems, engines };
}

for (const version of Object.keys(reacts)) {
  test(`React ${version}: a fast refresh keeps the model, and stops an answer`, async (context) => {
    const { page, problems, engines } = await open(context, version);
    await page.evaluate(() => {
      globalThis.model = globalThis.seen.model;
      void globalThis.seen.generation.generate("Once upon a time", { maxTokens: 400, ignoreEos: true });
      void globalThis.seen.chat.send("Once upon a time", { ignoreEos: true });
    });
    await page.waitForFunction(
      () => globalThis.seen.generation.text.length > 20 && globalThis.seen.chat.messages.at(-1).content.length > 20,
    );
    await page.evaluate(() => globalThis.refreshed());
    await page.getByText("second: ready").waitFor();
    await page.waitForFunction(
      () => globalThis.seen.generation.status === "done" && globalThis.seen.chat.status === "idle",
    );
    const kept = await page.evaluate(async () => ({
      same: globalThis.seen.model === globalThis.model,
      text: globalThis.seen.generation.text.length > 20,
      roles: globalThis.seen.chat.messages.map(({ role }) => role).join(),
      answer: (await globalThis.seen.generation.generate("Once", { maxTokens: 5 })).tokens.length,
    }));
    assert.deepEqual(kept, { same: true, text: true, roles: "user,assistant", answer: 5 });
    assert.equal(engines(), 1);
    assert.deepEqual(problems, []);
  });

  test(`React ${version}: what a server has rendered is taken over, and loads`, async (context) => {
    const { page, problems, engines } = await open(context, version, "?hydrate");
    await page.getByText("first: ready").waitFor();
    assert.equal(engines(), 1);
    assert.deepEqual(problems, []);
  });
}
