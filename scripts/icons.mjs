/**
 * The demo page's icons as pictures, for systems that take no SVG: www/icons/, drawn from www/icon.svg in Chromium.
 *
 *     node scripts/icons.mjs
 */
import { mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "../pkg/test/package/browsers.mjs";

const www = fileURLToPath(new URL("../www/", import.meta.url));
/** Systems cut a maskable icon to their own shape, and Apple's rounds it: both have a ground, and room around the drawing. */
const icons = [
  { name: "icon-192.png", size: 192, share: 1 },
  { name: "icon-512.png", size: 512, share: 1 },
  { name: "maskable-512.png", size: 512, share: 0.56, ground: "#f4f7f8" },
  { name: "apple-touch-icon.png", size: 180, share: 0.72, ground: "#f4f7f8" },
];

const drawing = Buffer.from(await readFile(path.join(www, "icon.svg"))).toString("base64");
await mkdir(path.join(www, "icons"), { recursive: true });
const browser = await launch();
try {
  for (const { name, size, share, ground = "transparent" } of icons) {
    const page = await browser.newPage({ viewport: { width: size, height: size } });
    const side = Math.round(size * share);
    await page.setContent(`<!doctype html><style>
      body { margin: 0; height: 100vh; display: grid; place-items: center; background: ${ground} }
      img { width: ${side}px; height: ${side}px }
    </style><img src="data:image/svg+xml;base64,${drawing}">`);
    await page.locator("img").evaluate((image) => image.decode());
    await page.screenshot({ path: path.join(www, "icons", name), omitBackground: true });
    await page.close();
  }
} finally {
  await browser.close();
}
