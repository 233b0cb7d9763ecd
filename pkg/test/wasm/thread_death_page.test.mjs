/** A thread that is killed while a page's engine waits for it, in each browser. */

import assert from "node:assert/strict";
import { cp, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { open as openInChromium, openInFirefox, openInWebKit } from "../package/browsers.mjs";
import { demoModel, isolation, page, serve } from "../package/support.mjs";
import { folderOf } from "../source/support/models.ts";

const dist = fileURLToPath(new URL("../../dist/", import.meta.url));

/** In the engine's worker: its first thread ends a moment after it is ready, and the page is told. */
const KILLER = `
if (self.name !== "ternlight pool") {
  const { Worker } = self;
  let killed = false;
  self.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data }) => {
        if (data !== "ready" || killed) return;
        killed = true;
        new BroadcastChannel("killed").postMessage(null);
        this.terminate();
      });
    }
  };
}
`;

const PROGRAM = `
import { load } from "./ternlight/index.js";
let killed = NaN;
new BroadcastChannel("killed").onmessage = () => { killed = performance.now(); };
const work = async () => {
  const model = await load("./model/", { threads: 2, cache: false });
  // Chromium lets a worker that is told to end go on for two seconds.
  await model.generate("Once", { maxTokens: 200_000, ignoreEos: true, onContextFull: "shift" }).finished;
  return { code: "none" };
};
const { code, message } = await work().catch((error) => error);
document.querySelector("output").textContent = JSON.stringify({ code, message, ms: performance.now() - killed });
`;

for (const [name, open] of [
  ["Chromium", openInChromium],
  ["Firefox", openInFirefox],
  ["WebKit", openInWebKit],
]) {
  test(`${name}: a thread that is killed is noticed within seconds`, { timeout: 300_000 }, async (context) => {
    const encode = (text) => new TextEncoder().encode(text);
    const folder = await folderOf(context, { "index.html": encode(page("./main.js")), "main.js": encode(PROGRAM) });
    const copy = path.join(folder, "ternlight");
    await cp(dist, copy, { recursive: true });
    const worker = path.join(copy, "worker.js");
    await writeFile(worker, KILLER + (await readFile(worker, "utf8")));
    const server = await serve({ mounts: { "/": folder, "/model/": demoModel }, headers: isolation });
    context.after(() => server.close());
    const { printed } = await open(context, server.url);
    const { code, message, ms } = JSON.parse(printed);
    assert.equal(code, "WorkerFailed", message);
    assert.match(message, /a thread of the engine's has ended by itself/);
    context.diagnostic(`${ms.toFixed(0)} ms`);
    // A quarter of a second is left for the engine to say why, and two for the end of the thread itself.
    assert.ok(ms < 5000, `${ms} ms`);
  });
}
