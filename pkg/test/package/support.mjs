/** The packed package, installed where nothing else is, and what a program of it prints. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { cp, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { isolation, serve } from "../../../scripts/serve.mjs";

export { launch, open } from "./browsers.mjs";
export { isolation, serve };
export const run = promisify(execFile);

const here = path.dirname(fileURLToPath(import.meta.url));
const pkg = path.resolve(here, "../..");

export const demoModel = path.join(pkg, "models", "ternlight-demo");

/** A tool of test/hosts: `host("vite5/bin/vite.js")`. */
export const host = (file) => path.join(pkg, "test", "hosts", "node_modules", file);

/** The demo model's most likely words: the same ones in every build and runtime. */
export const greedy =
  ' there lived a man who had a wife and a wife.\n"What is the matter with you?" asked the man.\n"I am the wife of';

/**
 * What `program.js` prints, wherever it runs: the same words, ids and bits of logits, by the build that is expected there.
 * A build with threads has used them all, because a team ends no operation before each of its members has said so.
 */
export async function expectAnswer(printed, { flavour, parts, cores = availableParallelism() }) {
  const threads = flavour.startsWith("threads") ? Math.min(cores, 8) : 1;
  // A machine with one core has nothing to share.
  if (threads === 1) flavour = flavour.replace("threads", "single");
  const { kept, tokens, logits } = await scalar();
  assert.match(kept, /^ there (was|lived) an? [a-z]+\.$/);
  const expected = { flavour, threads, ...(parts && { parts }), text: greedy, said: greedy, kept, tokens, logits };
  // An error's stack.
  assert.ok(printed.startsWith("{"), printed);
  assert.deepEqual(JSON.parse(printed), expected);
}

/** Options with which the demo model is split over two memories. */
export const inTwo = { contextLength: 256, kvCacheTokens: 256, maxPartBytes: 8e6 };

/** The fenced block of a document that holds this text. */
export async function recipe(document, text) {
  const blocks = await recipes(document);
  const found = blocks.find((block) => block.includes(text));
  assert.ok(found, `${document} has a block with ${text}`);
  return found;
}

/** All fenced blocks of a document of this repository. */
export async function recipes(document) {
  const file = new URL(`../../../${document}`, import.meta.url);
  return Array.from((await readFile(file, "utf8")).matchAll(/^```\w*\n(.*?)^```/gms), ([, block]) => block);
}

let once;

/** What one thread without relaxed SIMD computes, in this very process. */
function scalar() {
  once ??= (async () => {
    const { program } = await import("./program.js");
    return JSON.parse(await program(`${demoModel}/`, { threads: 1, flavour: "simd128" }));
  })();
  return once;
}

/** Of tests, removed when their file is done: while a test ends, its servers may still write there. */
const folders = [];
process.once("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** An empty folder for a test. */
async function folderFor(prefix = path.join(tmpdir(), "ternlight-")) {
  const folder = await mkdtemp(prefix);
  folders.push(folder);
  return folder;
}

/** `npm pack`, then `npm install` of the tarball in an empty folder that also gets `program.js`. */
export async function emptyFolderWithPackage(prefix) {
  const folder = await folderFor(prefix);
  await cp(await installed(), folder, { recursive: true });
  await cp(path.join(here, "program.js"), path.join(folder, "program.js"));
  return folder;
}

let install;

/** What npm makes, once for all tests of a file: each gets a copy. */
function installed() {
  install ??= (async () => {
    const folder = await folderFor();
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: pkg });
    const [{ filename }] = Object.values(JSON.parse(stdout));
    await writeFile(path.join(folder, "package.json"), `${JSON.stringify({ private: true, type: "module" })}\n`);
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`], { cwd: folder });
    return folder;
  })();
  return install;
}

/** The same with a page that shows what the program printed; the model is in `public`, which Vite serves and copies. */
export async function emptyFolderWithPage() {
  const folder = await emptyFolderWithPackage();
  await cp(path.join(here, "main.js"), path.join(folder, "main.js"));
  await writeFile(path.join(folder, "index.html"), page("./main.js"));
  await cp(demoModel, path.join(folder, "public", "model"), { recursive: true });
  return folder;
}

export const page = (script) =>
  `<!doctype html><title>test</title><output></output><script type="module" src="${script}"></script>\n`;

/** Serves a built page, with the model beside it. `asked` gathers what is asked for. */
export async function serveFolder(context, folder, headers, asked) {
  const server = await serve({ mounts: { "/": folder, "/model/": demoModel }, headers, asked });
  context.after(() => server.close());
  return server.url;
}

/** Starts a server that prints its address, and answers with that: what `wanted` finds, or the first group in it. */
export function startServer(context, program, args, options, wanted = /http:\/\/\S+:\d+\//) {
  // Some programs are a script that starts the real one: both are ended, as a group.
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"], detached: true });
  context.after(() => {
    // At once: a server that waits for a page's connections would outlive a test that failed.
    if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, "SIGKILL");
  });
  return new Promise((resolve, reject) => {
    let printed = "";
    const look = (chunk) => {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: Vite colours its output
      printed += String(chunk).replace(/\x1b\[\d+m/g, "");
      const found = wanted.exec(printed);
      if (found) resolve(found[1] ?? found[0]);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${program} ended with ${code} before it served:\n${printed}`)));
  });
}
