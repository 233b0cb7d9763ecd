import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { minified } from "../../../scripts/minified.mjs";
import { isolation, policy } from "../../../scripts/serve.mjs";
import { damaged, damagedFolder, file, golden, mounts, start, tiny, typeOf, visit } from "./support.mjs";

/** Everything but the model, without and with a chat template, the page's own scripts as they are published. */
const BUDGET = 400_000;
const CHAT_BUDGET = 424_000;

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

const open = (context, options) => visit(context, demo.browser, options?.url ?? demo.isolated, options);

test("the built-in model loads, and writes when asked to", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  assert.deepEqual([...new Set(await page.states())], ["loading", "ready"]);
  for (const control of [page.prompt, page.generate, page.stop, page.output, page.page.getByLabel("Prompt")]) {
    assert.equal(await control.count(), 1);
  }
  assert.equal(await page.stop.getAttribute("aria-disabled"), "true");

  await page.prompt.fill("The fox said");
  await page.set({ "Max tokens": 40, Seed: 1 });
  const text = await page.write();
  assert.ok(text.startsWith("The fox said ") && text.length > 80, text);
  assert.match(await page.status.innerText(), /40 tokens in/);
  for (const figure of ["Decode", "Prefill"]) {
    const shown = await page.page.locator(".rates div", { hasText: figure }).locator("b").innerText();
    assert.ok(Number(shown.replace(",", "")) > 0, `${figure}: ${shown}`);
  }
  assert.match(
    await page.page.getByRole("img", { name: /^Decode speed/ }).getAttribute("aria-label"),
    /\d tokens a second/,
  );
  const line = page.page.locator("#chart .line");
  assert.ok((await line.getAttribute("d")).length > 20);
  // Too short for a course: its average is drawn.
  await page.set({ "Max tokens": 2 });
  await page.write();
  assert.match(await line.getAttribute("d"), /^M[\d.]+ [\d.]+L[\d.]+ [\d.]+$/);
  assert.deepEqual(page.complaints, []);
});

test("the first text is computed while the model loads", async (context) => {
  const page = await open(context, { before: noteAnswers });
  await page.reach("ready");
  const [{ prefill }] = await page.page.evaluate(() => globalThis.answers.splice(0));
  assert.ok(prefill.tokens > 5 && prefill.late === null, JSON.stringify(prefill));
  await page.set({ "Max tokens": 5 });
  await page.write();
  const { finished } = await page.page.evaluate(() => globalThis.answers.at(-1));
  assert.deepEqual([finished.promptTokens.length, finished.timings.cachedN], [prefill.tokens, prefill.tokens - 1]);
});

/** Notes what the engine's worker answers. */
function noteAnswers() {
  globalThis.answers = [];
  globalThis.Worker = class extends Worker {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => data?.result && globalThis.answers.push(data.result));
    }
  };
}

test("loading shows how far it is, and can be cancelled and begun again", async (context) => {
  const page = await open(context, { before: holdProgress });
  await page.page.waitForFunction(() => globalThis.seen?.some((words) => /\d of 3\.3 MB/.test(words)));
  await page.reach("ready");
  const words = await page.page.evaluate(() => globalThis.seen);
  assert.ok(
    words.some((said) => /^Loading weights · [\d.]+ of 3\.3 MB · [\d.]+ MB\/s$/.test(said)),
    words.join("\n"),
  );
  const seconds = [0 / 0, 1 / 0, 2, 40.2, 600];
  const left = await page.page.evaluate(async (seconds) => seconds.map((await import("./format.js")).left), seconds);
  assert.deepEqual(left, ["", "", "", "40 s left", "10 min left"]);

  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.states();
  await page.page.evaluate(() => {
    document.getElementById("built-in").click();
    setTimeout(() => document.getElementById("cancel").click());
  });
  assert.equal(await page.settled(), "ready");
  assert.match(await page.status.innerText(), /cancelled/);
  assert.ok((await page.write()).length > 80);
});

/** Notes what the page says of its loading. */
function holdProgress() {
  globalThis.seen = [];
  addEventListener("DOMContentLoaded", () => {
    const bar = document.getElementById("progress");
    const note = () => globalThis.seen.push(bar.getAttribute("aria-valuetext"));
    new MutationObserver(note).observe(bar, { attributes: true, attributeFilter: ["aria-valuetext"] });
  });
}

test("text streams, and Stop ends it with what there is", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  // With other seeds one text of fifteen ends by itself, perhaps before it is stopped.
  await page.set({ "Max tokens": 480, Seed: 1 });
  for (const how of ["click", "Escape"]) {
    // In the page: a fast machine has written all before a click from outside comes.
    await page.page.evaluate((how) => {
      const lengths = new Set();
      const output = document.getElementById("output");
      const observer = new MutationObserver(() => {
        if (lengths.add(output.textContent.length).size < 3) return;
        observer.disconnect();
        const key = new KeyboardEvent("keydown", { key: "Escape", bubbles: true });
        if (how === "click") document.getElementById("stop").click();
        else document.activeElement.dispatchEvent(key);
      });
      observer.observe(output, { characterData: true, childList: true, subtree: true });
    }, how);
    await page.generate.click();
    await page.reach("stopped");
    assert.match(await page.status.innerText(), /^Stopped after \d+ tokens/);
    assert.ok((await page.output.innerText()).length > "Once upon a time there was a little rabbit who".length);
  }
  assert.ok((await page.write()).length > 200);
});

test("a seed gives the same text with threads and without", async (context) => {
  const texts = [];
  for (const [url, flavour, reason] of [
    [demo.isolated, "threads-relaxed"],
    [demo.plain, "single-relaxed", /One, because the page is not cross-origin isolated/],
  ]) {
    const page = await open(context, { url });
    await page.reach("ready");
    const facts = await page.page.locator("#engine-facts").innerText();
    assert.ok(facts.includes(flavour), facts);
    if (reason) assert.match(facts, reason);
    await page.set({ "Max tokens": 120, Seed: 42, Temperature: 0.9 });
    texts.push(await page.write());
  }
  assert.equal(texts[0], texts[1]);
});

test("a model that has a template chats", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.choose(tiny);
  assert.match(await page.page.locator("#model-name").innerText(), /TQ2_0\.gguf/);
  await page.set({ "Max tokens": 12, Seed: 3 });
  for (const [turns, said] of [
    [2, "Hello"],
    [4, "Again"],
  ]) {
    await page.prompt.fill(said);
    await page.states();
    await page.prompt.press("Enter");
    await page.page.waitForFunction(() => globalThis.states.at(-1) === "ready");
    assert.equal(await page.page.getByRole("article").count(), turns);
    assert.equal(await page.prompt.inputValue(), "");
  }
  assert.match(await page.output.innerText(), /You\s+Hello\s.*Model\s.+You\s+Again\s.*Model\s/s);
  await page.page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.page.getByRole("article").count(), 0);

  await page.page.getByLabel("Text", { exact: true }).check();
  await page.prompt.fill("Hello");
  assert.ok((await page.write()).startsWith("Hello"));
});

test("several texts are written at once, each as it is alone", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.set({ "Max tokens": 60, Seed: 7 });
  await page.page.getByText("Several at once").click();
  await page.page.getByLabel("One beginning a line").fill("The fox said\nOne dark night\n\nThe king had");
  await page.states();
  // A busy page gets its tokens in few messages, and still tells how fast each text was written.
  await page.page.getByRole("button", { name: "Write all" }).evaluate(async (button) => {
    button.click();
    const turn = () => new Promise((done) => setTimeout(done));
    while (document.querySelectorAll("#streams li").length < 3) await turn();
    for (let round = 0; round < 10; round++) {
      await turn();
      const until = performance.now() + 200;
      while (performance.now() < until);
    }
  });
  await page.page.waitForFunction(() => globalThis.states.at(-1) === "ready", null, { timeout: 30_000 });
  assert.match(await page.status.innerText(), /^3 texts, 180 tokens in .* tokens\/s together$/);
  const streams = page.page.locator("#streams li");
  assert.equal(await streams.count(), 3);
  for (const figure of await streams.locator(".quiet").allInnerTexts()) {
    assert.match(figure, /^60 tokens · [\d,.]+ tokens\/s$/);
  }
  assert.ok(Number((await page.page.locator("#together").innerText()).replace(",", "")) > 0);
  const second = await streams.nth(1).locator("p").first().textContent();
  await page.prompt.fill("One dark night");
  await page.set({ Seed: 8 });
  assert.equal((await page.write()).trim(), second.trim());

  // All of them stop together.
  await page.set({ "Max tokens": 480 });
  await page.page.getByRole("button", { name: "Write all" }).click();
  await page.page.waitForFunction(() => document.querySelector("#streams li p")?.textContent.length > 40);
  await page.stop.click();
  await page.reach("stopped");
});

test("of several texts one that fails says so in its place, and seeds go on behind the largest", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.set({ "Max tokens": 8, Seed: Number.MAX_SAFE_INTEGER });
  await page.page.getByText("Several at once").click();
  const lines = page.page.getByLabel("One beginning a line");
  const streams = page.page.locator("#streams li");
  const run = async (text) => {
    await lines.fill(text);
    await page.states();
    // What the box is for, not the prompt's.
    await lines.press("Control+Enter");
    await page.page.waitForFunction(() => ["ready", "failed"].includes(globalThis.states.at(-1)));
    return page.status.innerText();
  };
  assert.match(await run(`The fox said\n${"king ".repeat(600)}\nOne dark night`), /^2 of 3 texts, 16 tokens in /);
  assert.match(await streams.nth(1).locator(".quiet").innerText(), /^This is more text than the model can hold/);
  const third = await streams.nth(2).locator("p").first().textContent();
  await page.set({ Seed: 1 });
  await page.prompt.fill("One dark night");
  assert.equal((await page.write()).trim(), third.trim());
  await run("king ".repeat(600));
  assert.match(await page.problem.innerText(), /more text than the model can hold/);
  assert.equal(await run("\n"), "There is no beginning to write on from");
});

test("a temperature between the steps is taken, and keys go in steps", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.set({ "Max tokens": 2, Temperature: 0.77, "Top-p": 0.955 });
  await page.write();
  const temperature = page.page.getByLabel("Temperature");
  for (const [key, value] of [
    ["ArrowUp", "0.8"],
    ["ArrowUp", "0.85"],
    ["ArrowDown", "0.8"],
  ]) {
    await temperature.press(key);
    assert.equal(await temperature.inputValue(), value);
  }
  await temperature.fill("5.5");
  await page.generate.click();
  assert.equal(await temperature.evaluate((field) => field.matches(":invalid")), true);
  assert.deepEqual(await page.states(), []);
});

test("Escape that ends a composition stops nothing", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.set({ "Max tokens": 100, Seed: 1 });
  await page.page.evaluate(() => {
    const key = (given) =>
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, ...given }));
    new MutationObserver(() => {
      key({ isComposing: true });
      key({ keyCode: 229 });
    }).observe(document.getElementById("output"), { characterData: true, childList: true, subtree: true });
  });
  await page.write();
  assert.match(await page.status.innerText(), /^100 tokens in/);
});

test("the focus is at hand after a load, and after one that was cancelled", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  const focused = () => page.page.evaluate(() => document.activeElement.id);
  const change = page.page.getByRole("button", { name: "Change model" });
  await change.click();
  await page.states();
  await page.page.getByRole("button", { name: "Built-in model" }).click();
  await page.settled();
  assert.equal(await focused(), "choose");
  await change.click();
  await page.page.evaluate(() => {
    document.getElementById("built-in").click();
    setTimeout(() => {
      document.getElementById("cancel").focus();
      document.getElementById("cancel").click();
    });
  });
  await page.page.getByText("Loading was cancelled").waitFor();
  assert.equal(await focused(), "choose");
});

test("what is no model, or a bad one, leaves the one that was there", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.set({ "Max tokens": 16, Seed: 5 });
  const text = await page.write();
  const folder = golden("models", "bitnet_packed");
  const missing = await damagedFolder(folder, (header) => {
    delete header["model.layers.0.input_layernorm.weight"];
  });
  const nan = await damagedFolder(folder, (header, data) => {
    const scale = header["model.layers.0.self_attn.q_proj.weight_scale"];
    assert.equal(scale.dtype, "BF16");
    data.writeUInt16LE(0x7fc0, scale.data_offsets[0]);
  });
  for (const [files, says, code] of [
    [damaged("cut.gguf", (bytes) => bytes.subarray(0, bytes.length * 0.6)), /ends too early/, "Truncated"],
    [damaged("head.gguf", (bytes) => bytes.subarray(0, 20)), /ends too early/, "Truncated"],
    [damaged("magic.gguf", (bytes) => void bytes.write("GGML")), /not a model file/, "BadMagic"],
    [missing, /part of the model is missing/, "MissingTensor"],
    [
      damaged("type.gguf", (bytes) => void bytes.writeUInt32LE(99, typeOf(bytes, "blk.0.attn_q.weight"))),
      /stored in a way that does not run/,
      "UnsupportedType",
    ],
    [nan, /not numbers/, "NonFinite"],
    [file("holiday.png", Buffer.from("89504e470d0a1a0a0000000d49484452", "hex")), /not a model file/, "BadMagic"],
    [file("empty.gguf", Buffer.alloc(0)), /not a model file/, "BadMagic"],
    [[file("a.txt", Buffer.from("a")), file("b.txt", Buffer.from("b"))], /no model at this place/, "NotFound"],
    [
      [damaged("a.gguf", () => {}), damaged("b.gguf", () => {})],
      /It must be one model, not a\.gguf, b\.gguf/,
      "InvalidArgument",
    ],
  ]) {
    const name = files.name ?? "several";
    await page.choose(files);
    await page.reach("failed");
    assert.ok(
      (await page.problem.locator("pre").textContent()).startsWith(`${code}: `),
      await page.problem.innerText(),
    );
    assert.match(await page.problem.innerText(), says, name);
    assert.match(await page.problem.innerText(), /ternlight-demo is still loaded/, name);
    assert.equal(await page.page.locator("#model-name").innerText(), "ternlight-demo");
  }
  assert.equal(await page.write(), text);
  assert.equal(await page.problem.count(), 0);
  await page.choose(tiny);
  assert.match(await page.page.locator("#model-name").innerText(), /TQ2_0/);
});

test("an address is loaded, and one that leads nowhere is said to", async (context) => {
  const models = await demo.server({
    mounts: { "/": golden() },
    headers: { "access-control-allow-origin": "*", "access-control-expose-headers": "content-range, accept-ranges" },
  });
  const closed = await demo.server({ mounts: { "/": golden() }, headers: {} });
  const page = await open(context);
  await page.reach("ready");
  await page.page.getByRole("button", { name: "Change model" }).click();
  const load = async (address) => {
    await page.states();
    if (!(await page.page.getByLabel("Address").isVisible())) {
      await page.page.getByRole("button", { name: "Change model" }).click();
    }
    await page.page.getByLabel("Address").fill(address);
    await page.page.getByRole("button", { name: "Load", exact: true }).click();
    return page.settled();
  };
  for (const [address, says] of [
    ["model.gguf", /not an address/],
    ["ftp://localhost/model.gguf", /not an address/],
    ["hf:foo", /It must be hf:owner\/repo, .*, not hf:foo/],
    [`${models}gguf/none.gguf`, /no model at this place/],
    [`${closed}gguf/${path.basename(tiny)}`, /does not let other sites read/],
  ]) {
    assert.equal(await load(address), "failed", address);
    assert.match(await page.problem.innerText(), says, address);
  }
  for (const address of [`${models}gguf/${path.basename(tiny)}`, `${models}models/bitnet_packed/`]) {
    assert.equal(await load(address), "ready", await page.page.locator("body").innerText());
    assert.match(await page.page.locator("#model-summary").innerText(), /from localhost/);
    await page.page.getByLabel("Text", { exact: true }).check();
    await page.prompt.fill("Hello");
    await page.set({ "Max tokens": 4 });
    assert.ok((await page.write()).startsWith("Hello"));
  }
});

test("files and folders may be dropped", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  const devtools = await page.page.context().newCDPSession(page.page);
  for (const [place, name] of [
    [tiny, /TQ2_0\.gguf/],
    [golden("models", "bitnet_packed"), /^bitnet_packed$/],
  ]) {
    await page.states();
    const data = { items: [], files: [place], dragOperationsMask: 1 };
    for (const type of ["dragEnter", "dragOver", "drop"]) {
      await devtools.send("Input.dispatchDragEvent", { type, x: 400, y: 300, data });
      if (type === "dragOver") await page.page.getByText("Drop the model’s files").waitFor();
    }
    assert.equal(await page.settled(), "ready", await page.page.locator("body").innerText());
    assert.match(await page.page.locator("#model-name").innerText(), name);
    assert.equal(await page.page.locator("#drop").isVisible(), false);
  }
});

test("a browser that lacks something is told what", async (context) => {
  for (const [before, says] of [
    [() => delete globalThis.WebAssembly, /no WebAssembly/],
    [() => delete globalThis.Worker, /no workers/],
  ]) {
    const page = await open(context, { before });
    await page.reach("unsupported");
    assert.match(await page.problem.innerText(), says);
    assert.equal(await page.generate.count(), 0);
  }
});

test("a policy that forbids WebAssembly is said to", async (context) => {
  const forbidding = policy["content-security-policy"].replace(" 'wasm-unsafe-eval'", "");
  const url = await demo.server({ headers: { ...isolation, "content-security-policy": forbidding } });
  const page = await open(context, { url });
  await page.reach("unsupported");
  assert.match(await page.problem.innerText(), /content security policy that lacks 'wasm-unsafe-eval'/);
});

test("it fits narrow screens, and all of it can be reached by keyboard", async (context) => {
  const page = await open(context, { width: 360, height: 740 });
  await page.reach("ready");
  await page.choose(tiny);
  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.set({ "Max tokens": 8 });
  const width = await page.page.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(width, 360);

  const reached = new Set();
  await page.page.evaluate(() => document.activeElement.blur());
  for (let presses = 0; presses < 40; presses++) {
    await page.page.keyboard.press("Tab");
    reached.add(await page.page.evaluate(() => document.activeElement.id || document.activeElement.name));
  }
  for (const id of ["choose", "built-in", "pick-files", "url", "output", "prompt", "generate", "stop", "temperature"]) {
    assert.ok(reached.has(id), `${id} is not among ${[...reached].join(" ")}`);
  }
});

test("nothing comes from elsewhere, nothing is refused, and little is fetched", async (context) => {
  for (const headers of [{ ...isolation, ...policy }, policy]) {
    const url = await demo.server({ headers });
    const page = await open(context, { url });
    await page.reach("ready");
    await page.write();
    assert.deepEqual(page.complaints, []);

    const meta = await page.page.locator("meta[http-equiv=Content-Security-Policy]").getAttribute("content");
    assert.equal(meta, policy["content-security-policy"]);
    assert.deepEqual(
      page.requests.filter((request) => !request.startsWith(url)),
      [],
    );
    const own = ownFiles(page.requests);
    for (const needed of [/index\.js$/, /worker\.js$/, /\.wasm$/, /main\.js$/]) {
      assert.equal(own.filter((name) => needed.test(name)).length, 1, `${needed}: ${own.join(" ")}`);
    }
    assert.ok(!own.some((name) => name.endsWith("chat.js")), "the built-in model has no chat template");
    await weigh(context, "the page without its model", own, BUDGET);

    // What else a model with a template takes comes from the same place, and the policy allows it.
    await page.choose(tiny);
    assert.ok(ownFiles(page.requests).some((name) => name.endsWith("/dist/chat.js")));
    assert.deepEqual(page.complaints, []);
    await weigh(context, "the same with a chat template", [...own, "/ternlight/dist/chat.js"], CHAT_BUDGET);
  }
});

const ownFiles = (requests) =>
  [...new Set(requests.map((request) => new URL(request).pathname))].filter(
    (name) => !name.startsWith("/ternlight/models/"),
  );

/** Holds the engine and its scripts to a budget; the document and its style are counted beside them. */
async function weigh(context, what, files, budget) {
  let [total, scripts, rest] = [0, 0, 0];
  for (const name of files) {
    const prefix = name.startsWith("/ternlight/") ? "/ternlight/" : "/";
    const local = path.join(mounts[prefix], name === "/" ? "index.html" : name.slice(prefix.length));
    const bytes = await readFile(local);
    const own = prefix === "/" && local.endsWith(".js");
    const { length } = gzipSync(own ? await minified(bytes.toString()) : bytes, { level: 9 });
    if (/\.(js|wasm)$/.test(local)) total += length;
    else rest += length;
    if (local.endsWith(".js")) scripts += length;
  }
  const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
  context.diagnostic(
    `${what}: ${kB(total)} gzipped, ${kB(scripts)} of them scripts, and ${kB(rest)} of document and style, ${files.length} files`,
  );
  assert.ok(total < budget, `${what}: ${total} bytes are over the budget of ${budget}`);
}

test("a page that cannot have what a chat template needs is told so", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  let absent = true;
  await page.page.route("**/dist/chat.js", (route) =>
    absent ? route.fulfill({ status: 404, body: "" }) : route.continue(),
  );
  await page.choose(tiny);
  await page.reach("failed");
  const told = await page.problem.locator("pre").textContent();
  assert.match(told, /^Network: could not import http:\S+\/dist\/chat\.js, which models with a chat template need: ./);
  // Another attempt finds it.
  absent = false;
  await page.choose(tiny);
  assert.match(await page.page.locator("#model-name").innerText(), /TQ2_0\.gguf/);
});

test("it works from any place of a plain server", async (context) => {
  const moved = Object.entries(mounts).map(([prefix, folder]) => [`/some/place${prefix}`, folder]);
  const url = await demo.server({ mounts: Object.fromEntries(moved), headers: {} });
  const page = await open(context, { url: `${url}some/place/` });
  await page.reach("ready");
});
