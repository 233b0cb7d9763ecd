/**
 * The picture of the demo page in the README: docs/images/demo.png, of the real page in Chromium, after it has written a text.
 *
 *     make build && node docs/scripts/picture.mjs
 */
import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { start } from "../../pkg/test/page/support.mjs";

const file = fileURLToPath(new URL("../images/demo.png", import.meta.url));
/** Bytes that a picture in a README may have. */
const MOST = 150_000;

const demo = await start();
try {
  const context = await demo.browser.newContext({ viewport: { width: 1120, height: 700 }, colorScheme: "light" });
  const page = await context.newPage();
  await page.goto(demo.isolated);
  await page.waitForSelector(':root[data-state="ready"]');
  await page.getByRole("textbox", { name: "Prompt" }).fill("Once upon a time");
  for (const [label, value] of [
    ["Max tokens", "120"],
    ["Seed", "3"],
  ]) {
    await page.getByLabel(label).fill(value);
  }
  // The second time is as fast as all later ones.
  for (let time = 0; time < 2; time++) {
    await page.getByRole("button", { name: "Generate" }).click();
    await page.waitForFunction(() => document.getElementById("output").textContent.length > 300);
    await page.waitForSelector(':root[data-state="ready"]');
  }
  await page.evaluate(() => document.getElementById("output").scrollTo(0, 0));
  await page.screenshot({ path: file });
} finally {
  await demo.stop();
}
const { size } = statSync(file);
if (size > MOST) throw new Error(`${file} has ${size} bytes, more than ${MOST}`);
console.log(`${file}: ${size} bytes`);
