/** A program written for the browsers' own `LanguageModel`, unchanged but for the line that installs this one: in a page and in a worker. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { isolation, launch, serve } from "../package/support.mjs";

const pkg = fileURLToPath(new URL("../../", import.meta.url));
const template = "{% for message in messages %}{{ message.content }}{% endfor %}";

/** As the guides to the browsers' interface have it. */
const program = `
  async function program() {
    const told = { availability: await LanguageModel.availability(), progress: [] };
    const session = await LanguageModel.create({
      initialPrompts: [{ role: "system", content: "Be brief. " }],
      samplingMode: "most-predictable",
      expectedInputs: [{ type: "text", languages: ["en"] }],
      expectedOutputs: [{ type: "text", languages: ["en"] }],
      monitor(m) {
        m.addEventListener("downloadprogress", (e) => told.progress.push([e instanceof ProgressEvent, e.loaded, e.total]));
      },
    });
    const schema = { type: "object", required: ["rating"], additionalProperties: false, properties: { rating: { type: "integer", minimum: 0, maximum: 5 } } };
    told.rating = JSON.parse(await session.prompt("Rate this:", { responseConstraint: schema })).rating;
    const copy = await session.clone();
    told.streamed = "";
    const stream = copy.promptStreaming("Once upon a time", { responseConstraint: /( [a-z]{2,8}){6}/ });
    const reader = stream.getReader();
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) told.streamed += value;
    told.used = [session.contextUsage > 0, copy.contextUsage > session.contextUsage, session.contextWindow];
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 50);
    told.aborted = await session.prompt("Tell a long story.", { signal: controller.signal }).catch(({ name }) => name);
    told.quota = await session.prompt("word ".repeat(2000)).catch((error) => [
      error.name,
      error instanceof (self.QuotaExceededError ?? DOMException),
      error.requested > error.quota,
    ]);
    session.destroy();
    told.destroyed = await session.prompt("x").catch(({ name }) => name);
    return told;
  }
`;
const own = `
  import { install } from "${pkg}dist/prompt-api.js";
  ${program}
  const native = "LanguageModel" in self;
  const loadOptions = { threads: 1, cache: false, chatTemplate: ${JSON.stringify(template)} };
  const installed = install("/model/", { loadOptions, override: native });
  self.LanguageModel.mark = 1;
  const kept = install("/model/", { loadOptions }) === false && self.LanguageModel.mark === 1;
  const tell = (told) => (typeof document === "undefined" ? postMessage(told) : (globalThis.told = told));
  program().then((told) => tell({ ...told, installed, kept }), (error) => tell({ error: String(error) }));
`;

let browser;
let server;
let script;
before(async () => {
  const options = {
    bundle: true,
    write: false,
    format: "esm",
    external: ["./hub.js"],
    alias: { ternlight: `${pkg}dist/index.js` },
  };
  const { outputFiles } = await build({ stdin: { contents: own, resolveDir: pkg }, ...options });
  script = outputFiles[0].text;
  server = await serve({
    mounts: { "/ternlight/": pkg, "/model/": `${pkg}models/ternlight-demo` },
    headers: isolation,
  });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

async function ran(start) {
  const page = await browser.newPage();
  const served = (contentType, body) => (route) => route.fulfill({ contentType, body, headers: isolation });
  await page.route(`${server.url}ternlight/dist/program.js`, served("text/javascript", script));
  await page.route(server.url, served("text/html", `<!doctype html><script type="module">${start}</script>`));
  await page.goto(server.url);
  const told = await page.waitForFunction(() => globalThis.told, null, { timeout: 60_000 });
  const value = await told.jsonValue();
  await page.close();
  return value;
}

for (const [where, start] of [
  ["a page", 'import "/ternlight/dist/program.js";'],
  [
    "a worker",
    'new Worker("/ternlight/dist/program.js", { type: "module" }).onmessage = ({ data }) => (globalThis.told = data);',
  ],
]) {
  test(`in ${where}`, { timeout: 90_000 }, async () => {
    const { error, progress, rating, streamed, ...told } = await ran(start);
    assert.equal(error, undefined);
    assert.ok(rating >= 0 && rating <= 5);
    assert.match(streamed, /^( [a-z]{2,8}){6}$/);
    assert.deepEqual(progress[0], [true, 0, 1]);
    assert.deepEqual(progress.at(-1), [true, 1, 1]);
    assert.deepEqual(told, {
      availability: "downloadable",
      used: [true, true, 512],
      aborted: "AbortError",
      quota: ["QuotaExceededError", true, true],
      destroyed: "AbortError",
      installed: true,
      kept: true,
    });
  });
}
