/** What the page shows of models that it keeps, and how it takes up a load that was cut off. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { files, MIB, modelServer, WEIGHTS } from "../source/support/stuck.mjs";
import { start, visit } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

test("a load that was cut off is shown, continued and deleted", { timeout: 120_000 }, async (context) => {
  const server = await modelServer(context);
  const tabs = await demo.browser.newContext({ viewport: { width: 1280, height: 900 } });
  // All in one profile, which keeps what a page keeps.
  const open = () => visit(context, { newContext: async () => tabs }, demo.isolated);
  const name = new URL(server.url).host;

  const first = await open();
  await first.reach("ready");
  await first.page.getByRole("button", { name: "Change model" }).click();
  const kept = first.page.getByRole("region", { name: /Kept in this browser/ });
  await kept.getByText("ternlight-demo").waitFor();
  assert.match(await kept.innerText(), /3\.\d+ MB/);
  server.state.stuck = true;
  await first.page.getByLabel("Address").fill(server.url);
  await first.states();
  await first.page.getByRole("button", { name: "Load", exact: true }).click();
  const list = () =>
    first.page.evaluate(async () =>
      (await (await import("./ternlight/dist/index.js")).cache.list()).map((one) => one.kept),
    );
  while (!(await list()).includes(2 * MIB)) await first.page.waitForTimeout(50);
  await first.page.getByRole("button", { name: "Cancel" }).click();
  await first.settled();
  assert.match(
    await first.status.innerText(),
    /cancelled: [\d.]+ of 3\.\d MB are here, and Continue goes on from there/,
  );
  await picture(first, "cancelled");
  await first.page.close();

  server.state.stuck = false;
  server.asked.length = 0;
  const second = await open();
  await second.reach("ready");
  await second.page.getByRole("button", { name: "Change model" }).click();
  await second.states();
  await second.page.getByRole("button", { name: `Continue ${name}` }).click();
  assert.equal(await second.settled(), "ready", await second.page.locator("body").innerText());
  assert.match(await second.page.locator("#model-summary").innerText(), /from 127\.0\.0\.1/);
  // The picture of the weights reads a few kilobytes by itself.
  const large = server.asked.filter(({ sent }) => sent > MIB / 2).map(({ path, range }) => `${path} ${range}`);
  const rest = `bytes=${2 * MIB}-${files[WEIGHTS].length - 1}`;
  assert.deepEqual(large, [`${WEIGHTS} ${rest}`], "what was here did not come again");

  await second.page.getByRole("button", { name: "Change model" }).click();
  await second.page.getByRole("button", { name: `Load ${name}` }).waitFor();
  await picture(second, "complete");
  await second.page.getByRole("button", { name: `Delete ${name}` }).click();
  await second.page.getByRole("button", { name: `Load ${name}` }).waitFor({ state: "detached" });
  await second.page.getByRole("button", { name: "Delete ternlight-demo" }).click();
  await second.page.getByText("Kept in this browser").waitFor({ state: "hidden" });

  await second.page.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("ternlight");
    const handle = await folder.getFileHandle(`${"0".repeat(24)}-${"0".repeat(16)}`, { create: true });
    const file = await handle.createWritable();
    await file.write("x".repeat(5000));
    await file.close();
  });
  await second.page.getByRole("button", { name: "Change model" }).click();
  await second.page.getByRole("button", { name: "Change model" }).click();
  await second.page.getByText("5 kB · damaged, or of another version").waitFor();
  await second.page.getByRole("button", { name: "Delete Unreadable" }).click();
  await second.page.getByText("Kept in this browser").waitFor({ state: "hidden" });
  assert.deepEqual([...first.complaints, ...second.complaints], []);
});

/** For people: `PICTURES=folder` keeps what the page looks like. */
async function picture({ page }, name) {
  const { PICTURES } = process.env;
  if (!PICTURES) return;
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: `${PICTURES}/${name}-${colorScheme}.png` });
  }
}
