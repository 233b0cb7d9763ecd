/**
 * How much memory a load takes at most, beside what it needs in the end:
 *
 *   node benches/peaks.mjs [--shape b2b] [--only node|chromium]
 *
 * makes a model file of the shape, serves it on loopback from this process, and loads it in a Node process and in a page of Chromium,
 * each fresh, not kept and kept; in Chromium it is also read and dropped, piece by piece as it comes and into one buffer. What the
 * process (the page's renderer) has in memory is read from /proc every 10 ms: the most during `load()` above what it had before, and
 * after it. Beside it 1.05 × packed weights + keys and values + 64 MB. Linux; Node 22.18 or newer, a built package and Chromium.
 */
import { fork } from "node:child_process";
import { createWriteStream } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "../pkg/test/package/support.mjs";
import { serve } from "../scripts/serve.mjs";

const options = (kept) => ({ threads: 2, contextLength: 512, cache: kept });

/** Bytes that these processes have in memory. */
async function resident(pids) {
  const statuses = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/status`, "utf8").catch(() => "")));
  return statuses.reduce((sum, status) => sum + 1024 * Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0), 0);
}

/** The renderers that descend from this process. */
async function renderers() {
  const all = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const processes = await Promise.all(
    all.map(async (pid) => {
      const [stat, line] = await Promise.all(
        ["stat", "cmdline"].map((name) => readFile(`/proc/${pid}/${name}`, "utf8").catch(() => "")),
      );
      return { pid, parent: stat.slice(stat.lastIndexOf(")") + 4).split(" ")[0], renders: line.includes("--type=renderer") };
    }),
  );
  const parents = new Map(processes.map(({ pid, parent }) => [pid, parent]));
  const ours = (pid) => pid === String(process.pid) || (parents.has(pid) && ours(parents.get(pid)));
  return processes.filter(({ pid, renders }) => renders && ours(pid)).map(({ pid }) => pid);
}

/** What some work takes at most above what there was, and leaves. */
async function watched(pids, work) {
  const before = await resident(pids);
  let [most, done] = [before, false];
  const watch = (async () => {
    while (!done) {
      most = Math.max(most, await resident(pids));
      await new Promise((next) => setTimeout(next, 10));
    }
  })();
  await work();
  done = true;
  await watch;
  return { before, most: most - before, after: (await resident(pids)) - before };
}

/** A process of its own: loads what it is told to, and says when. */
async function loads() {
  const { load } = await import("../pkg/dist/node.js");
  process.on("message", async ({ url, kept }) => {
    globalThis.model = await load(url, options(kept));
    process.send("loaded");
  });
  process.send("ready");
}

async function inNode(url, kept, folder) {
  const env = { ...process.env, XDG_CACHE_HOME: path.join(folder, "cache") };
  const child = fork(fileURLToPath(import.meta.url), ["--loads"], { env });
  const told = () => new Promise((resolve) => child.once("message", resolve));
  await told();
  const found = await watched([child.pid], () => {
    const loaded = told();
    child.send({ url, kept });
    return loaded;
  });
  child.kill();
  return found;
}

/** In the page: what takes the memory that is watched. */
const inPage = {
  load: async ({ url, options }) => void (globalThis.model = await globalThis.library.load(url, options)),
  read: async ({ url }) => {
    const reader = (await fetch(url, { cache: "no-store" })).body.getReader();
    while (!(await reader.read()).done);
  },
  "read into one buffer": async ({ url }) => {
    const reader = (await fetch(url, { cache: "no-store" })).body.getReader({ mode: "byob" });
    for (let bytes = new Uint8Array(1 << 18), done = false; !done; ) {
      const read = await reader.read(new Uint8Array(bytes.buffer));
      [bytes, done] = [read.value, read.done];
    }
  },
};

async function inChromium(url, kept, folder, base, work = "load") {
  const browser = await launch(await mkdtemp(path.join(folder, "profile-")));
  const page = await browser.newPage();
  await page.goto(`${base}empty.html`);
  await page.evaluate(async (library) => void (globalThis.library = await import(library)), `${base}dist/index.js`);
  const found = await watched(await renderers(), () =>
    page.evaluate(inPage[work], { url, options: options(kept) }),
  );
  await browser.close();
  return found;
}

async function main() {
  const { values } = parseArgs({ options: { shape: { type: "string", default: "b2b" }, only: { type: "string" } } });
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-peaks-"));
  try {
    const { synthetic } = await import("../pkg/src/bench/synthetic.ts");
    const file = synthetic({ shape: values.shape });
    await pipeline(file.stream(), createWriteStream(path.join(folder, "model.gguf")));
    const dist = fileURLToPath(new URL("../pkg/dist/", import.meta.url));
    const { url: base } = await serve({ mounts: { "/": folder, "/dist/": dist } });
    const url = `${base}model.gguf`;
    const { canRun } = await import("../pkg/dist/node.js");
    const { needed } = await canRun(url, options(false));
    const bound = 1.05 * needed.weights + needed.kv + 64e6;
    const mb = (bytes) => (bytes / 1e6).toFixed(0);
    console.log(`file ${mb(file.size)} MB; weights ${mb(needed.weights)}, keys and values ${mb(needed.kv)}, scratch ${mb(needed.scratch)}`);
    console.log("\n| | before, MB | most during the load, above | after it, above | 1.05 × weights + kv + 64 MB |\n|---|--:|--:|--:|--:|");
    for (const [where, run] of Object.entries({ Node: inNode, Chromium: inChromium })) {
      if (values.only && values.only !== where.toLowerCase()) continue;
      const tell = (what, { before, most, after }, bound) =>
        console.log(`| ${where}, ${what} | ${mb(before)} | ${mb(most)} | ${mb(after)} | ${bound} |`);
      for (const kept of [false, true]) {
        tell(kept ? "kept" : "not kept", await run(url, kept, folder, base), mb(bound));
      }
      if (run !== inChromium) continue;
      for (const work of ["read", "read into one buffer"]) tell(work, await run(url, false, folder, base, work), "");
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

if (process.argv[2] === "--loads") {
  await loads();
} else {
  await main();
  process.exit();
}
