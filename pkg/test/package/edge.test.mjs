/** An edge worker as Cloudflare runs it: no threads, no workers, nothing compiled from bytes, 128 MB. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { synthetic } from "../../src/bench/synthetic.ts";
import { emptyFolderWithPackage, expectAnswer, host, recipe, run, serveFolder, startServer } from "./support.mjs";

const MB = 2 ** 20;
/** V8 keeps to these; together they are what an edge worker gets. */
const WASM_MB = 96;
const HEAP_MB = 32;

const worker = (flavour) => `
import constrain from "ternlight/constrain.wasm";
import wasm from "ternlight/${flavour}.wasm";
import { canRun, EngineError, inspect, load } from "ternlight/edge";
import { program } from "./program.js";

let model;

const routes = {
  "/answer": (source) => program(source, { wasm, constrain }),
  async "/about"(source) {
    const { needed } = await canRun(source, { wasm });
    const { architecture } = await inspect(source, { wasm });
    return JSON.stringify({ architecture, needed: needed.total });
  },
  // Loaded by the first request, used by all.
  async "/again"(source) {
    model ??= await load(source, { wasm });
    return JSON.stringify({ ids: await model.tokenize("Once"), memory: model.info.memoryBytes });
  },
  async "/format"(source) {
    const ask = async (given) => {
      const model = await load(source, { wasm, ...given });
      return model.generate("Once", { responseFormat: { type: "regex", pattern: " (yes|no)" } }).finished;
    };
    const { code, detail } = await ask({}).catch((error) => error);
    return JSON.stringify([(await ask({ constrain })).text, code, detail.option]);
  },
  async "/wrong"(source) {
    const tries = [{ wasm: null }, { wasm: {} }, { wasm, constrain: wasm }, { wasm, threads: 2 }, { wasm, flavour: "simd128" }, { wasm, wsm: 1 }];
    const codes = [];
    for (const options of tries) {
      await load(source, options).catch((error) => codes.push(error instanceof EngineError && error.detail.option));
    }
    return JSON.stringify(codes);
  },
};

export default {
  async fetch(request, { MODEL }) {
    try {
      return new Response(await routes[new URL(request.url).pathname](MODEL));
    } catch (error) {
      return new Response(error.stack, { status: 500 });
    }
  },
};
`;

const config = (flavour, model) => `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "internet", network = (allow = ["private"]))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
  v8Flags = ["--wasm-max-mem-pages=${WASM_MB * 16}", "--max-heap-size=${HEAP_MB}"],
);
const main :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [
    (name = "worker", esModule = embed "bundle.js"),
    (name = "ternlight/constrain.wasm", wasm = embed "node_modules/ternlight/dist/constrain.wasm"),
    (name = "ternlight/${flavour}.wasm", wasm = embed "node_modules/ternlight/dist/${flavour}.wasm"),
  ],
  bindings = [(name = "MODEL", text = "${model}")],
);
`;

/** Bundles worker.js as Cloudflare's tools do, starts it, and answers with what asks it. */
async function start(context, folder, flavour, model) {
  await writeFile(path.join(folder, "config.capnp"), config(flavour, model));
  const bundle = ["worker.js", "--bundle", "--format=esm", "--external:*.wasm", "--outfile=bundle.js"];
  await run(host("esbuild/bin/esbuild"), bundle, { cwd: folder });
  const ports = ["serve", "config.capnp", "--control-fd=1"];
  const port = await startServer(context, host(".bin/workerd"), ports, { cwd: folder }, /"port":(\d+)/);
  return async (route, init) => (await fetch(`http://127.0.0.1:${port}${route}`, init)).text();
}

test("an edge worker", async (context) => {
  const folder = await emptyFolderWithPackage();
  const program = path.join(folder, "program.js");
  await writeFile(program, (await readFile(program, "utf8")).replace('"ternlight"', '"ternlight/edge"'));
  const model = `${await serveFolder(context, folder, {})}model/`;

  for (const flavour of ["single-relaxed", "single-simd128"]) {
    await context.test(flavour, { timeout: 60_000 }, async (context) => {
      await writeFile(path.join(folder, "worker.js"), worker(flavour));
      const get = await start(context, folder, flavour, model);

      await expectAnswer(await get("/answer"), { flavour });
      const { architecture, needed } = JSON.parse(await get("/about"));
      assert.equal(architecture, "BitNetForCausalLM");
      assert.ok(needed < WASM_MB * MB);
      const first = JSON.parse(await get("/again"));
      assert.ok(first.memory < WASM_MB * MB, `${first.memory} bytes`);
      assert.deepEqual(JSON.parse(await get("/again")), first);
      assert.deepEqual(JSON.parse(await get("/wrong")), ["wasm", "wasm", "constrain", "threads", "flavour", "wsm"]);
      const [text, ...refused] = JSON.parse(await get("/format"));
      assert.match(text, /^ (yes|no)$/);
      assert.deepEqual(refused, ["UnsupportedOption", "constrain"]);
    });
  }
});

test("the guide's edge worker", { timeout: 60_000 }, async (context) => {
  const folder = await emptyFolderWithPackage();
  const model = `${await serveFolder(context, folder, {})}model/`;
  await writeFile(path.join(folder, "worker.js"), await recipe("docs/guide/edge.md", "export default"));
  const get = await start(context, folder, "single-relaxed", model);
  // The model of the first request answers the others.
  for (let request = 0; request < 3; request++) assert.match(await get("/"), /[a-z ]{20}/);
});

const served = `
import wasm from "ternlight/single-relaxed.wasm";
import { load } from "ternlight/edge";
import { createApp } from "ternlight/server";

let app;

export default {
  async fetch(request, { MODEL }) {
    app ??= createApp({ models: { demo: (more) => load(MODEL, { wasm, ...more }) } });
    await app.ready;
    return app.fetch(request);
  },
};
`;

test("an edge worker that is a server", { timeout: 60_000 }, async (context) => {
  const folder = await emptyFolderWithPackage();
  const model = `${await serveFolder(context, folder, {})}model/`;
  await writeFile(path.join(folder, "worker.js"), served);
  const get = await start(context, folder, "single-relaxed", model);
  const { data } = JSON.parse(await get("/v1/models"));
  assert.equal(data[0].id, "demo");
  const ask = { model: "demo", prompt: "Once upon a time", max_tokens: 12, temperature: 0 };
  const post = (more) => get("/v1/completions", { method: "POST", body: JSON.stringify({ ...ask, ...more }) });
  const { choices } = JSON.parse(await post());
  assert.equal(choices[0].text.length > 20, true);
  const events = (await post({ stream: true })).trim().split("\n\n");
  assert.equal(events.pop(), "data: [DONE]");
  const texts = events.map((event) => JSON.parse(event.replace(/^id: .*\ndata: /, "")).choices[0].text);
  assert.equal(texts.join(""), choices[0].text);
  const { error } = JSON.parse(await post({ model: "none" }));
  assert.equal(error.code, "model_not_found");
});

test('what cannot be measured is the same whether it is left open or "auto"', async ({ mock }) => {
  const { load } = await import("../../dist/edge.js");
  const wasm = await WebAssembly.compile(await readFile(new URL("../../dist/single-relaxed.wasm", import.meta.url)));
  // So large that "off" is not what a measurement begins with.
  const file = await new Response(synthetic({ shape: "138m,vocab=4096" }).stream()).blob();
  assert.ok(file.size > 20 * MB);
  mock.method(performance, "now", () => 0);
  const cases = [
    [{}, "off"],
    [{ weightPrefetch: undefined }, "off"],
    [{ weightPrefetch: "auto" }, "off"],
    [{ weightPrefetch: "near" }, "near"],
  ];
  const dots = new Set();
  for (const [options, ahead] of cases) {
    const model = await load(file, { wasm, contextLength: 64, ...options });
    const { dotProduct, weightPrefetch } = model.info;
    await model.close();
    assert.deepEqual([...new Set(Object.values(weightPrefetch))], [ahead], JSON.stringify(options));
    dots.add(dotProduct);
  }
  assert.equal(dots.size, 1);
});

const onX64 = { skip: process.arch !== "x64" && "other processors have one instruction for it" };

test("products are summed in pairs where no instruction multiplies bytes and sums four", onX64, async () => {
  const folder = await emptyFolderWithPackage();
  const script = `
    import { readFile } from "node:fs/promises";
    import { load } from "ternlight/edge";
    const found = {};
    for (const flavour of ["single-relaxed", "single-simd128"]) {
      const module = new URL(import.meta.resolve(\`ternlight/\${flavour}.wasm\`));
      const wasm = await WebAssembly.compile(await readFile(module));
      const model = await load(new Blob([await readFile(process.argv[2])]), { wasm, contextLength: 64 });
      const { dotProduct, oneBitSums } = model.info;
      found[flavour] = [dotProduct, oneBitSums];
      await model.close();
    }
    console.log(JSON.stringify(found));
  `;
  const file = path.join(folder, "model.gguf");
  const one = synthetic({ shape: "138m,layers=2,vocab=4096", type: "q1_0" });
  await writeFile(file, await new Response(one.stream()).bytes());
  await writeFile(path.join(folder, "dots.mjs"), script);
  const { stdout } = await run(process.execPath, ["--no-enable-avx-vnni", "dots.mjs", file], { cwd: folder });
  const expected = { "single-relaxed": ["dot2", "lookup"], "single-simd128": ["dot4", "lookup"] };
  assert.deepEqual(JSON.parse(stdout), expected);
});

test("a clock that stands still keeps nobody waiting", async () => {
  const folder = await emptyFolderWithPackage();
  // As it does on an edge worker while it computes; the same entry runs in Node.
  const script = `
    import { readFile } from "node:fs/promises";
    import { canRun, load } from "ternlight/edge";
    import demo from "ternlight/demo";
    const files = {};
    for (const [name, url] of Object.entries(demo)) files[name] = new Blob([await readFile(url)]);
    const wasm = await WebAssembly.compile(await readFile("node_modules/ternlight/dist/single-simd128.wasm"));
    performance.now = () => 0;
    const model = await load(files, { wasm });
    const abort = new AbortController();
    let turns = 0;
    const beat = setInterval(() => turns++ > 2 && abort.abort("enough"), 0);
    const endless = { temperature: 0, ignoreEos: true, signal: abort.signal };
    const { finished } = model.generate("Once", endless);
    console.log(await finished.catch((reason) => reason), turns > 2);
    clearInterval(beat);
    const running = model.generate("Once", { ignoreEos: true }).finished.catch((error) => error.code);
    await model.close();
    console.log(await running, await model.tokenize("a").catch((error) => error.code));
    // And the process ends: nothing goes on by itself.
  `;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", script], {
    cwd: folder,
    timeout: 60_000,
  });
  assert.equal(stdout, "enough true\nClosed Closed\n");
});
