/** Workers that start no workers of their own, where `ternlight/edge` runs and `ternlight` says so, and a page whose worker is missing. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { emptyFolderWithPage, greedy, open, page, serveFolder } from "./support.mjs";

const dist = "./node_modules/ternlight/dist";

/** What a worker tells: the text of a model beside it by `ternlight/edge`, and the error of `ternlight`. */
const told = `
import { load } from "${dist}/index.js";
import { load as loadHere } from "${dist}/edge.js";

async function text() {
  const wasm = await WebAssembly.compileStreaming(fetch("${dist}/single-relaxed.wasm"));
  const model = await loadHere("./model/", { wasm });
  return model.generate("Once upon a time", { maxTokens: 32, temperature: 0 }).text();
}

async function told() {
  const refused = await load("./model/").catch(({ code, message }) => ({ code, message }));
  return JSON.stringify({ refused, text: await text().catch(String) });
}
`;

const shared = `${told}onconnect = async ({ ports: [port] }) => port.postMessage(await told());\n`;
const service = `${told}oninstall = () => skipWaiting();
onactivate = (event) => event.waitUntil(clients.claim());
onfetch = (event) => {
  if (event.request.url.endsWith("/ask")) event.respondWith(told().then((text) => new Response(text)));
};\n`;

const askShared = `const { port } = new SharedWorker("./worker.js", { type: "module" });
port.onmessage = ({ data }) => (document.querySelector("output").textContent = data);\n`;
const askService = `
const there = new Promise((resolve) => (navigator.serviceWorker.oncontrollerchange = resolve));
await navigator.serviceWorker.register("./worker.js", { type: "module" });
await there;
document.querySelector("output").textContent = await (await fetch("./ask")).text();\n`;

for (const [kind, worker, main] of [
  ["shared", shared, askShared],
  ["service", service, askService],
]) {
  test(`a ${kind} worker`, { timeout: 60_000 }, async (context) => {
    const folder = await emptyFolderWithPage();
    await writeFile(path.join(folder, "worker.js"), worker);
    await writeFile(path.join(folder, "main.js"), main);
    const { printed } = await open(context, await serveFolder(context, folder, {}));
    const { refused, text } = JSON.parse(printed);
    assert.equal(text, greedy);
    assert.deepEqual(refused, { code: "UnsupportedRuntime", message: "no workers here: use ternlight/edge" });
  });
}

test("a page whose worker was not copied says which file it lacks", { timeout: 60_000 }, async (context) => {
  const folder = await emptyFolderWithPage();
  await writeFile(
    path.join(folder, "alone.js"),
    await readFile(path.join(folder, "node_modules/ternlight/dist/index.js")),
  );
  const main = `import { load } from "./alone.js";
load("./model/").catch(({ code, message }) => (document.querySelector("output").textContent = \`\${code}: \${message}\`));\n`;
  await writeFile(path.join(folder, "main.js"), main);
  await writeFile(path.join(folder, "index.html"), page("./main.js"));
  const { printed } = await open(context, await serveFolder(context, folder, {}));
  assert.match(printed, /^WorkerFailed: .*worker\.js is missing/);
});

test("an edge worker has no paths, and says so of a folder as of a file", async () => {
  const { load } = await import("../../dist/edge.js");
  const wasm = await WebAssembly.compile(await readFile(new URL("../../dist/single-relaxed.wasm", import.meta.url)));
  for (const source of ["./model/", "./model.gguf"]) {
    const message = "this runtime has no file paths";
    await assert.rejects(load(source, { wasm }), { code: "InvalidArgument", message });
  }
});
