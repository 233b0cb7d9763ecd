/** The packed package, installed where nothing else is, and a browser to open it in. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { isolation, serve } from "../../../scripts/serve.mjs";

export { isolation, serve };
export const run = promisify(execFile);

const here = path.dirname(fileURLToPath(import.meta.url));
const pkg = path.resolve(here, "../..");

const demoModel = path.join(pkg, "models", "ternlight-demo");

/** A tool of test/hosts: `host("vite5/bin/vite.js")`. */
export const host = (file) => path.join(pkg, "test", "hosts", "node_modules", file);

/** The demo model's most likely words: the same ones in every build and runtime. */
const greedy = ' there lived a man who had a wife and a wife.\n"What is the matter with you?" asked the man';

/** What `program.js` prints wherever it runs, `flavour` and `threads` apart. */
export function expectAnswer(printed, { flavour }) {
  const threads = flavour.startsWith("threads") ? Math.min(availableParallelism(), 8) : 1;
  // A machine with one core has nothing to share.
  if (threads === 1) flavour = flavour.replace("threads", "single");
  assert.deepEqual(printed.startsWith("{") ? JSON.parse(printed) : printed, { flavour, threads, text: greedy });
}

/** `npm pack`, then `npm install` of the tarball in an empty folder that also gets `program.js`. */
export async function emptyFolderWithPackage(context) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: pkg });
  const [{ filename }] = Object.values(JSON.parse(stdout));
  await writeFile(path.join(folder, "package.json"), `${JSON.stringify({ private: true, type: "module" })}\n`);
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`], { cwd: folder });
  await cp(path.join(here, "program.js"), path.join(folder, "program.js"));
  return folder;
}

/** The same with a page that shows what the program printed; the model is in `public`, which Vite serves and copies. */
export async function emptyFolderWithPage(context) {
  const folder = await emptyFolderWithPackage(context);
  await cp(path.join(here, "main.js"), path.join(folder, "main.js"));
  await writeFile(path.join(folder, "index.html"), page("./main.js"));
  await cp(demoModel, path.join(folder, "public", "model"), { recursive: true });
  return folder;
}

export const page = (script) =>
  `<!doctype html><title>test</title><output></output><script type="module" src="${script}"></script>\n`;

/** Serves a built page, with the model beside it. */
export async function serveFolder(context, folder, headers) {
  const server = await serve({ mounts: { "/": folder, "/model/": demoModel }, headers });
  context.after(() => server.close());
  return server.url;
}

/** Starts a server that prints its address, and answers with that. */
export function startServer(context, program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  context.after(() => child.kill());
  return new Promise((resolve, reject) => {
    let printed = "";
    const look = (chunk) => {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: Vite colours its output
      printed += String(chunk).replace(/\x1b\[\d+m/g, "");
      const url = /http:\/\/\S+:\d+\//.exec(printed)?.[0];
      if (url) resolve(url);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${program} ended with ${code} before it served:\n${printed}`)));
  });
}

/** A browser with an empty profile. */
export async function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  assert.ok(
    existsSync(executablePath),
    `no browser at ${executablePath}: \`scripts/setup.sh chromium\` installs it, or set CHROMIUM`,
  );
  return chromium.launch({ executablePath, args: flags });
}

/** Opens a page in a browser of its own and answers with what it printed. */
export async function open(context, url) {
  const browser = await launch();
  context.after(() => browser.close());
  const tab = await browser.newPage();
  const seen = [];
  tab.on("console", (message) => seen.push(`${message.type()}: ${message.text()}`));
  tab.on("pageerror", (error) => seen.push(`error: ${error.message}`));
  tab.on("requestfailed", (request) => seen.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  tab.on("response", (response) => response.status() >= 400 && seen.push(`${response.status()}: ${response.url()}`));
  try {
    await tab.goto(url);
    const output = tab.locator("output:not(:empty)");
    await output.waitFor({ timeout: 60_000 });
    return { printed: await output.textContent(), seen };
  } catch (error) {
    throw new Error(`${url} printed nothing; the browser saw:\n${seen.join("\n")}`, { cause: error });
  } finally {
    await browser.close();
  }
}

/** The browser runs as root in containers and must not call out. */
const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
