/**
 * The site of the documents in docs/.site, ready for any static host: pages by VitePress, API pages by TypeDoc, and the demo page,
 * which isolates itself by a service worker where the host sends no headers. Then every link of it is checked, and the demo is opened.
 *
 *     node docs/scripts/site.mjs      with Node 22 or newer, a built package and Chromium
 *
 * DOCS_BASE=/folder/ is where it will lie on its host, if not at the top.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { minified } from "../../scripts/minified.mjs";
import { serve } from "../../scripts/serve.mjs";

const docs = fileURLToPath(new URL("../", import.meta.url));
const root = path.join(docs, "..");
const site = path.join(docs, ".site");
const base = process.env.DOCS_BASE || "/";

function timed(what, work) {
  const begin = performance.now();
  work();
  console.log(`docs            ${what}: ${((performance.now() - begin) / 1000).toFixed(1)} s`);
}

const bin = (name, ...args) =>
  execFileSync(path.join(docs, "node_modules", ".bin", name), args, {
    cwd: docs,
    stdio: ["ignore", "ignore", "inherit"],
  });

timed("pages", () => bin("vitepress", "build", "."));
timed("API", () => bin("typedoc", "--options", "typedoc.json", "--logLevel", "Error"));
await copyDemo();
timed("links", checkLinks);
await openDemo();
console.log(`docs            ${site}`);

async function copyDemo() {
  const demo = path.join(site, "demo");
  const inside = path.join(demo, "ternlight");
  cpSync(path.join(root, "www"), demo, { recursive: true });
  for (const name of readdirSync(demo, { recursive: true }).filter((name) => name.endsWith(".js"))) {
    const file = path.join(demo, name);
    writeFileSync(file, await minified(readFileSync(file, "utf8")));
  }
  const needed = (file) => !/[/\\]dist[/\\](glue|types|cli|node|edge)/.test(file);
  cpSync(path.join(root, "pkg", "dist"), path.join(inside, "dist"), { recursive: true, filter: needed });
  cpSync(path.join(root, "pkg", "models"), path.join(inside, "models"), { recursive: true });
  cpSync(path.join(root, "pkg", "dist", "isolate.js"), path.join(demo, "isolate.js"));
  for (const name of ["index.html", "bench.html", "health.html"]) {
    const file = path.join(demo, name);
    const before = readFileSync(file, "utf8");
    const after = before.replace(/( *)<script /, '$1<script src="isolate.js"></script>\n$1<script ');
    if (after === before) throw new Error(`${name} has no script to put isolate.js before`);
    writeFileSync(file, after);
  }
}

/** Every address in the site's own pages leads to a file that is there, and to an element with that id. */
function checkLinks() {
  const pages = readdirSync(site, { recursive: true }).filter((file) => file.endsWith(".html"));
  const ids = new Map();
  const idsOf = (file) => {
    if (!ids.has(file)) {
      const text = readFileSync(file, "utf8");
      ids.set(file, new Set(Array.from(text.matchAll(/\s(?:id|name)="([^"]*)"/g), ([, id]) => decoded(id))));
    }
    return ids.get(file);
  };
  const broken = new Set();
  let count = 0;
  for (const page of pages) {
    const text = readFileSync(path.join(site, page), "utf8").replace(
      /<(script|style|pre|code)\b[^>]*>[\s\S]*?<\/\1>/g,
      "",
    );
    for (const [, written] of text.matchAll(/\s(?:href|src)="([^"]*)"/g)) {
      const target = written.replaceAll("&amp;", "&");
      if (target === "" || /^(https?|mailto|data|javascript):/.test(target)) continue;
      count++;
      const url = new URL(target, `http://site${base}${page.split(path.sep).join("/")}`);
      const inSite = url.pathname.startsWith(base) && decodeURIComponent(url.pathname.slice(base.length));
      let file = inSite === false ? null : path.join(site, inSite);
      if (file && existsSync(file) && statSync(file).isDirectory()) file = path.join(file, "index.html");
      if (!file || !existsSync(file)) broken.add(`${page}: ${target}`);
      else if (url.hash.length > 1 && file.endsWith(".html") && !idsOf(file).has(decoded(url.hash.slice(1)))) {
        broken.add(`${page}: ${target} (no such element)`);
      }
    }
  }
  if (pages.length < 20 || count < 500) throw new Error(`only ${pages.length} pages with ${count} links were found`);
  if (broken.size > 0) throw new Error(`${broken.size} of ${count} links lead nowhere:\n${[...broken].join("\n")}`);
}

function decoded(text) {
  const plain = text.replaceAll("&amp;", "&").replaceAll("&#39;", "'").replaceAll("&quot;", '"');
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}

/** The demo page runs with threads where the host sends no headers at all. */
async function openDemo() {
  const { launch } = await import("../../pkg/test/package/browsers.mjs");
  const server = await serve({ mounts: { [base]: site }, headers: {} });
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.goto(`${server.url.slice(0, -1)}${base}demo/index.html`);
    await page.waitForFunction(() => crossOriginIsolated && document.documentElement.dataset.state === "ready", null, {
      timeout: 60_000,
    });
    const facts = await page.locator("#engine-facts").innerText();
    if (!/threads-/.test(facts)) throw new Error(`the demo page runs without threads:\n${facts}`);
  } finally {
    await browser.close();
    await server.close();
  }
}
