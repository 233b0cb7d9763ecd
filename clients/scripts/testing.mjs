/** What the tests of the packages share: the demo model, and pages in Chromium that are built from one file. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { blocks, mounts as named, rewritten } from "../../pkg/test/docs/support.mjs";
import { launch } from "../../pkg/test/package/browsers.mjs";
import { isolation, serve } from "../../scripts/serve.mjs";

export { CONTINUATION, HERMES, PLAIN } from "../../pkg/test/server/support/app.ts";
export { isolation, serve };

const root = fileURLToPath(new URL("../../", import.meta.url));
export const demoModel = path.join(root, "pkg", "models", "ternlight-demo");
export const golden = (...names) => path.join(root, "tests", "golden", ...names);

/** A model of 2 layers with a chat template, in one file of 487 kB. */
export const tiny = golden("gguf", "llama_bitlinear.TQ2_0.gguf");

/** One for all tests of a file. */
let browser;
after(async () => (await browser)?.close());

/** Programs that a document has in a language and of a package, with what a server must have for them at `server`. */
export function examples(document, language, name, server = "/") {
  const own = blocks(document).filter((block) => block.language === language && block.code.includes(name));
  return own.map(({ code }) => ({ code: rewritten(code, server), mounts: named([code]) }));
}

/** Runs the programs of a document that name a package, in its folder. @returns how many there are */
export async function runPrograms(context, document, name, folder) {
  const mounts = Object.assign({}, ...examples(document, "js", name).map((one) => one.mounts));
  const server = await serve({ mounts });
  context.after(() => server.close());
  const programs = examples(document, "js", name, server.url);
  const env = { ...process.env, XDG_CACHE_HOME: "/nonexistent" };
  for (const { code } of programs) {
    const args = ["--input-type=module", "--eval", code];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder, env });
    assert.notEqual(stdout.trim(), "", code);
  }
  return programs.length;
}

/** A component as a document has it, as a program that shows it. */
export const shown = (code, folder) => ({
  contents: `import { createRoot } from "react-dom/client";
${code.replace("export default function", "const Example = function")}
createRoot(document.getElementById("root")).render(<Example />);`,
  loader: "jsx",
  resolveDir: folder,
});

/**
 * Builds a program for pages, serves it with the demo model at `/model/`, and opens it. `alias` puts other packages in the place of
 * those that the program names, by their folders; `body` is what the page's root holds at first.
 *
 * @param entry its file, or its text as esbuild takes it
 */
export async function openPage(context, entry, { alias = {}, mounts = {}, query = "", body = "" } = {}) {
  const { outputFiles } = await build({
    ...(typeof entry === "string" ? { entryPoints: [entry] } : { stdin: entry }),
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    conditions: ["browser"],
    external: ["ternlight", "ternlight/*"],
    define: { "process.env.NODE_ENV": '"development"' },
    alias,
    logLevel: "warning",
  });
  const imports = { ternlight: "/ternlight/dist/index.js", "ternlight/integration": "/ternlight/dist/integration.js" };
  const html = `<!doctype html><title>test</title><link rel="icon" href="data:," />
<script type="importmap">${JSON.stringify({ imports })}</script>
<div id="root">${body}</div><script type="module" src="/page.js"></script>`;
  const served = { "/model/": demoModel, "/ternlight/": path.join(root, "pkg"), ...mounts };
  const server = await serve({ mounts: served, headers: isolation });
  context.after(() => server.close());
  browser ??= launch();
  const session = await (await browser).newContext();
  context.after(() => session.close());
  const page = await session.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  const answer = (contentType, body) => (route) => route.fulfill({ contentType, body, headers: isolation });
  await page.route(`${server.url}page.js`, answer("text/javascript", outputFiles[0].text));
  await page.route(new RegExp(`^${server.url}(\\?.*)?$`), answer("text/html", html));
  await page.goto(`${server.url}${query}`);
  return { page, problems, url: server.url };
}

/** Asks a page of an example until it shows an answer: one of random weights may end at once. */
export async function ask(page) {
  const button = page.getByRole("button").first();
  await button.and(page.locator(":enabled")).waitFor();
  for (let left = 3; ; left--) {
    if (await page.getByRole("textbox").count()) await page.getByRole("textbox").fill("Name three rivers.");
    await button.click();
    const answered = page.waitForFunction(isAnswered, null, { timeout: 10_000 });
    if (await answered.catch((error) => (left > 1 ? null : Promise.reject(error)))) return;
  }
}

/** In the page: questions and answers are paragraphs by turns, or the answer stands in the button. */
function isAnswered() {
  const said = (element) => element.textContent.replace(/^(assistant:|Tell)/, "").trim() !== "";
  const paragraphs = [...document.querySelectorAll("p")];
  if (paragraphs.length === 0) return said(document.querySelector("button"));
  return paragraphs.some((one, i) => i % 2 === 1 && said(one));
}
