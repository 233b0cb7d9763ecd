/** The page as an app: a catalogue of models, names on a hub, links, what is stored, and the page without a network. */
import assert from "node:assert/strict";
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { startHub } from "../source/support/hub.ts";
import { goldenFile } from "../source/support/models.ts";
import { chatModel, mounts, picture, start, tiny, visit } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

const open = (context, options) => visit(context, demo.browser, options?.url ?? demo.isolated, options);
const outside = (page) => page.requests.filter((url) => !/^(blob:|http:\/\/localhost:)/.test(url));

/** Leads the hub's own address to one on loopback, with one model. */
async function hub(context, page) {
  const bytes = await goldenFile("gguf/llama_bitlinear.I2_S.gguf");
  const revisions = { main: { "model-i2_s.gguf": bytes } };
  const repositories = { "owner/repo": { revisions }, "owner/gated": { revisions, gated: true } };
  // A model of the catalogue, as far as its name goes.
  const bonsai = { revisions: { main: { "Bonsai-1.7B-Q1_0.gguf": bytes } } };
  repositories["prism-ml/Bonsai-1.7B-gguf"] = bonsai;
  const { url } = await startHub(context, { repositories });
  await page.page.context().route("https://huggingface.co/**", async (route) => {
    const request = route.request();
    const { range } = request.headers();
    const response = await fetch(request.url().replace("https://huggingface.co", url), {
      method: request.method(),
      headers: range ? { range } : {},
    });
    const headers = Object.fromEntries(response.headers);
    await route.fulfill({ status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) });
  });
}

/** The engine's next workers see a device with so many GiB. */
async function withMemory({ page }, gibibytes) {
  await page.route("**/dist/worker.js", async (route) => {
    const response = await route.fetch();
    const pinned = `Object.defineProperty(navigator, "deviceMemory", { value: ${gibibytes} });`;
    const { "content-length": _, ...headers } = response.headers();
    await route.fulfill({ response, headers, body: `${pinned}\n${await response.text()}` });
  });
}

test("the catalogue says what fits and how fast it is expected to be, and asks no server", {
  timeout: 120_000,
}, async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await withMemory(page, 2);
  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.page.getByText("Public models: which fit here?").click();
  const row = (name) => page.page.locator("#picker li").filter({ has: page.page.getByText(name, { exact: true }) });
  await row("bitnet_b1_58-large").getByText(/takes/).waitFor({ timeout: 60_000 });
  assert.match(
    await row("Bonsai 1.7B").innerText(),
    /1\.7 B parameters · 248 MB to download · takes \d+ MB · fits · Apache-2\.0 · context 32,768 · temperature 0\.5, topK 20, topP 0\.85, minP 0/,
  );
  assert.match(await row("Falcon3 10B Instruct 1.58bit").innerText(), /takes [\d.]+ GB · does not fit here/);
  assert.match(await row("Falcon-E 1B Base").innerText(), /whether it fits is not known/);
  await page.page.getByRole("button", { name: "How fast would they be here?" }).click();
  await page.page.getByText(/^Estimated for short texts/).waitFor({ timeout: 90_000 });
  const speedOf = async (name) =>
    Number(/about ([\d.,]+) tokens\/s expected/.exec(await row(name).innerText())[1].replace(",", ""));
  assert.ok((await speedOf("Bonsai 1.7B")) > (await speedOf("Bonsai 8B")));
  await picture(page, "picker");
  assert.deepEqual(outside(page), []);
  assert.deepEqual(page.complaints, []);
});

test("a catalogue that was unfolded before its part had come is planned, also when the chooser was closed meanwhile", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  let arrive;
  const held = new Promise((resolve) => (arrive = resolve));
  await page.page.route("**/models/chooser.js", async (route) => {
    await held;
    await route.continue();
  });
  const change = page.page.getByRole("button", { name: "Change model" });
  await change.click();
  await page.page.getByText("Public models: which fit here?").click();
  arrive();
  const planned = page.page.locator("#picker li").filter({ hasText: "takes" });
  await planned.first().waitFor();
  await change.click();
  await page.page.waitForTimeout(1000);
  const before = await planned.count();
  await change.click();
  await planned.nth(before + 1).waitFor();
  assert.deepEqual(page.complaints, []);
});

/** A server that says not to ask again soon. */
const REFUSED = {
  "access-control-allow-origin": "*",
  "access-control-expose-headers": "retry-after",
  "retry-after": "3600",
};

test("a name on the hub is loaded, and one that is not there is said to be", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await hub(context, page);
  const load = async (name) => {
    await page.states();
    if (!(await page.page.getByLabel("Address").isVisible())) {
      await page.page.getByRole("button", { name: "Change model" }).click();
    }
    await page.page.getByLabel("Address").fill(name);
    await page.page.getByRole("button", { name: "Load", exact: true }).click();
    return page.settled();
  };
  const fails = async (name, said) => {
    assert.equal(await load(name), "failed");
    assert.match(await page.problem.innerText(), said);
    // A page has no variables, and no token to send.
    assert.doesNotMatch(await page.problem.locator("pre").textContent(), /HF_TOKEN/);
  };
  await fails("hf:owner/nothing", /no model at this place\.\s+Its name is misspelt, or it is private\./);
  await fails("hf:owner/gated", /This model is gated\.\s+Its owner wants terms to be accepted on its page\. Download/);
  for (const [status, said] of [
    [401, /The server does not give this model to everybody\.\s+Download/],
    [429, /The server has had too many requests\.\s+Try again later\./],
    [503, /The server has failed\.\s+Try again later\./],
  ]) {
    await page.page.route("https://example.com/**", (route) => route.fulfill({ status, headers: REFUSED }), {
      times: 1,
    });
    await fails("https://example.com/model.gguf", said);
  }
  assert.equal(await load("hf:owner/repo"), "ready", await page.page.locator("main").innerText());
  assert.equal(await page.page.locator("#model-name").innerText(), "owner/repo");
  assert.match(await page.page.locator("#model-summary").innerText(), /from huggingface\.co/);
  // Sampling follows what the catalogue knows of a model.
  const shown = () =>
    page.page
      .locator("#composer")
      .evaluate(({ elements: { temperature, topK, topP } }) =>
        [temperature, topK, topP].map(({ valueAsNumber }) => valueAsNumber),
      );
  assert.deepEqual(await shown(), [0.7, 40, 0.95]);
  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.page.getByText("Public models: which fit here?").click();
  await page.page.getByRole("button", { name: "Load Bonsai 1.7B", exact: true }).click();
  await page.reach("ready");
  await page.page.locator("#model-name").getByText("prism-ml/Bonsai-1.7B-gguf").waitFor();
  await page.reach("ready");
  assert.deepEqual(await shown(), [0.5, 20, 0.85]);
  // Under the short name it is the same model.
  assert.equal(await load("hf:owner/repo"), "ready");
  assert.deepEqual(await shown(), [0.7, 40, 0.95]);
  assert.equal(await load("hf:prism-ml/Bonsai-1.7B-gguf"), "ready");
  assert.deepEqual(await shown(), [0.5, 20, 0.85]);
});

test("a link asks before anything is downloaded", async (context) => {
  const link = `${demo.isolated}#model=hf%3Aowner%2Frepo&prompt=Once+more`;
  const page = await open(context, { url: link });
  await hub(context, page);
  await page.page.getByRole("heading", { name: "This link asks for the model owner/repo" }).waitFor();
  assert.match(
    await page.page.locator("#ask").innerText(),
    /from huggingface\.co\. How much is downloaded is not known/,
  );
  await picture(page, "link");
  await page.page.waitForTimeout(300);
  assert.deepEqual(outside(page), []);
  assert.deepEqual(
    page.requests.filter((url) => url.includes("/ternlight/models/")),
    [],
  );
  await page.page.getByRole("button", { name: "No, the built-in model" }).click();
  await page.reach("ready");
  assert.equal(await page.page.locator("#model-name").innerText(), "ternlight-demo");
  assert.equal(await page.prompt.inputValue(), "Once more");
  assert.deepEqual(outside(page), []);

  const other = await open(context, { url: link });
  await hub(context, other);
  await other.page.getByRole("button", { name: "Load it" }).click();
  await other.reach("ready");
  assert.equal(await other.page.locator("#model-name").innerText(), "owner/repo");
  assert.equal(await other.prompt.inputValue(), "Once more");

  for (const name of [
    "prism-ml/Bonsai-1.7B-gguf/Bonsai-1.7B-Q1_0.gguf",
    "prism-ml/Bonsai-1.7B-gguf",
    "prism-ml/Bonsai-1.7B-gguf@main",
  ]) {
    const known = await open(context, { url: `${demo.isolated}#model=hf:${name}` });
    await known.page
      .getByText("It comes from huggingface.co. 248 MB are downloaded; nothing has been asked for yet.")
      .waitFor();
  }

  for (const name of ["javascript:alert(1)", "foo"]) {
    const wrong = await open(context, { url: `${demo.isolated}#model=${name}&prompt=Once+more` });
    await wrong.reach("failed");
    assert.match(await wrong.problem.innerText(), /This is not an address.*ternlight-demo is still loaded/s);
    assert.match(await wrong.page.locator("#model-summary").innerText(), /built in/);
    assert.ok((await wrong.write()).startsWith("Once more"));
  }
});

test("a link's question gives way to what its reader does, and a loaded model stays", async (context) => {
  const page = await open(context, { url: `${demo.isolated}#model=hf%3Aowner%2Frepo` });
  await hub(context, page);
  const { page: tab } = page;
  const name = tab.locator("#model-name");
  const asks = (repo) => tab.getByRole("heading", { name: `This link asks for the model ${repo}` });
  await asks("owner/repo").waitFor();
  // Another link, and then another model, take its place.
  await tab.evaluate(() => {
    location.hash = "model=hf:owner/other";
  });
  await asks("owner/other").waitFor();
  assert.equal(await asks("owner/repo").count(), 0);
  await tab.getByRole("button", { name: "Change model" }).click();
  await tab.getByRole("button", { name: "Built-in model", exact: true }).click();
  await page.reach("ready");
  assert.equal(await tab.locator("#ask").isHidden(), true);
  // A link in the middle of the work takes nothing away.
  await page.choose(tiny);
  const loaded = await name.innerText();
  assert.match(loaded, /TQ2_0\.gguf/);
  for (const give of [
    () => tab.keyboard.press("Escape"),
    () => tab.getByRole("button", { name: /^No, keep/ }).click(),
  ]) {
    await tab.evaluate(() => {
      location.hash = `model=hf:owner/repo&prompt=${location.hash.length}`;
    });
    await asks("owner/repo").waitFor();
    assert.deepEqual(
      [await name.innerText(), await page.page.evaluate(() => globalThis.states.at(-1))],
      [loaded, "ready"],
    );
    await give();
    await tab.getByText("The link was not followed").waitFor();
    assert.deepEqual([await tab.locator("#ask").isHidden(), await name.innerText()], [true, loaded]);
  }
  // A prompt alone, and no link at all, are no reason to load anything.
  await page.states();
  await tab.evaluate(() => {
    location.hash = "prompt=The+fox";
  });
  await tab.waitForFunction(() => document.getElementById("prompt").value === "The fox");
  await tab.evaluate(() => {
    location.hash = "";
  });
  await tab.waitForTimeout(300);
  assert.deepEqual([await page.states(), await name.innerText()], [[], loaded]);
  assert.deepEqual(outside(page), []);
});

test("a link to the model and prompt is copied", async (context) => {
  const page = await open(context, { permissions: ["clipboard-read", "clipboard-write"] });
  await page.reach("ready");
  await page.prompt.fill("The fox & the crow");
  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.page.getByRole("button", { name: "Copy a link to this" }).click();
  await page.page.getByText("A link to this model and prompt is copied").waitFor();
  const link = await page.page.evaluate(() => navigator.clipboard.readText());
  const other = await open(context, { url: link });
  await other.reach("ready");
  assert.equal(await other.prompt.inputValue(), "The fox & the crow");

  await page.choose(tiny);
  await page.page.getByRole("button", { name: "Change model" }).click();
  await page.page.getByRole("button", { name: "Copy a link to this" }).click();
  await page.page
    .getByText("A link to this prompt is copied, without the model, which is a file of this device")
    .waitFor();
});

test("storage that the browser forbids is said to be", async (context) => {
  const before = () => {
    navigator.storage.getDirectory = async () => {
      throw new DOMException("Storage directory access is denied.", "SecurityError");
    };
  };
  const page = await open(context, { before });
  await page.reach("ready");
  await page.page.getByRole("button", { name: "Storage" }).click();
  await page.page.getByText("This browser keeps nothing for this page.").waitFor();
});

test("the storage panel says what is kept, and deletes it", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.choose(await chatModel());
  await page.set({ "Max tokens": 8 });
  await page.prompt.fill("Tell me of a king.");
  await page.states();
  await page.prompt.press("Enter");
  await page.page.waitForFunction(() => globalThis.states.at(-1) === "ready");
  await page.page.getByText("Conversations (1)").waitFor();
  const panel = page.page.getByLabel("Storage", { exact: true });
  await page.page.waitForTimeout(500);
  await page.page.getByRole("button", { name: "Storage" }).click();
  await panel.getByText("ternlight-demo").waitFor();
  const text = await panel.innerText();
  assert.match(text, /[\d.]+ [kMG]B of the [\d.]+ [MG]B that the browser allows/);
  assert.match(text, /Saved sessions\s+1, [\d.]+ (bytes|[kM]B) of at most 512 MB/);
  assert.match(text, /Conversations\s+1 in this browser/);
  await picture(page, "storage");
  const remove = async (name) => {
    await panel.getByRole("button", { name: `Delete: ${name}` }).click();
    await panel.getByRole("button", { name: `Really? Delete: ${name}` }).click();
  };
  await remove("Saved sessions");
  await panel.getByText(/^none: what the model has read/).waitFor();
  await panel.getByText("1 in this browser").waitFor();
  // The button is gone, and whoever uses the keyboard goes on from the panel.
  const held = () => page.page.evaluate(() => document.activeElement.id);
  assert.equal(await held(), "storage");
  await remove("Conversations");
  await panel.getByText("0 in this browser").waitFor();
  assert.equal(await page.page.getByRole("article").count(), 0);
  await panel.getByRole("button", { name: "Delete ternlight-demo" }).click();
  await panel.getByRole("button", { name: "Delete ternlight-demo" }).waitFor({ state: "detached" });
  assert.equal(await held(), "storage");
  assert.deepEqual(page.complaints, []);
});

test("after one visit the page opens and writes without a network, with threads that the host did not give", {
  timeout: 120_000,
}, async (context) => {
  const session = await demo.browser.newContext();
  context.after(() => session.close());
  const kept = { newContext: async () => session };
  const first = await visit(context, kept, demo.plain, { offline: true });
  await first.reach("ready");
  await first.page.waitForSelector(":root[data-offline=ready]", { timeout: 60_000 });
  assert.equal(await first.page.evaluate(() => crossOriginIsolated), false);
  await first.page.close();

  await session.setOffline(true);
  const page = await visit(context, kept, demo.plain, { offline: true });
  await page.reach("ready");
  assert.equal(await page.page.evaluate(() => crossOriginIsolated), true);
  assert.match(await page.page.locator("#engine-facts").innerText(), /threads-relaxed/);
  await page.set({ "Max tokens": 12 });
  assert.ok((await page.write()).length > 40);
  // What it had not opened before is there too.
  await page.choose(await chatModel());
  await page.prompt.fill("Tell me of a king.");
  await page.states();
  await page.prompt.press("Enter");
  await page.page.waitForFunction(() => globalThis.states.at(-1) === "ready");
  assert.equal(await page.page.getByRole("article").count(), 2);
  await page.page.getByRole("button", { name: "Storage" }).click();
  await page.page.getByText(/^\d+ files, so that it opens without a network/).waitFor();
});

test("without a network the page is of one version, whatever of it was opened, and when the site has changed", {
  timeout: 240_000,
}, async (context) => {
  const site = await mkdtemp(path.join(tmpdir(), "ternlight-site-"));
  context.after(() => rm(site, { recursive: true, force: true }));
  await cp(mounts["/"], site, { recursive: true });
  const url = await demo.server({ mounts: { ...mounts, "/": site }, headers: {} });
  const session = await demo.browser.newContext();
  context.after(() => session.close());
  const visited = async (act) => {
    const page = await visit(context, { newContext: async () => session }, url, { offline: true });
    await page.reach("ready");
    const found = await act(page);
    await page.page.close();
    return found;
  };
  const online = () => visited(({ page }) => page.waitForSelector(":root[data-offline=ready]", { timeout: 60_000 }));
  const versions = async () => {
    await session.setOffline(true);
    const found = await visited(async (page) => {
      await page.choose(await chatModel());
      await page.page.getByText("Attach a text file").waitFor();
      return page.page.evaluate(() => globalThis.versions);
    });
    await session.setOffline(false);
    return found;
  };
  // One that the page opens with, and one that comes when somebody chats.
  const parts = ["main.js", "chat/view.js"];
  const change = async (version) => {
    for (const name of parts) {
      const text = await readFile(path.join(mounts["/"], name), "utf8");
      await writeFile(path.join(site, name), `${text}\n(globalThis.versions ??= {})["${name}"] = ${version};\n`);
    }
  };
  const whole = (version) => Object.fromEntries(parts.map((name) => [name, version]));

  await change(1);
  await online();
  assert.deepEqual(await versions(), whole(1));
  await change(2);
  await online();
  assert.deepEqual(await versions(), whole(2));
  // Of a version that cannot be had whole nothing is kept.
  await change(3);
  const lacking = path.join(site, "links.js");
  await rm(lacking);
  await symlink(lacking, lacking);
  await online();
  assert.deepEqual(await versions(), whole(2));
  // A file that the site has no longer is missed by nobody.
  await rm(lacking);
  await online();
  assert.deepEqual(await versions(), whole(3));
});

test("what is kept for later is every file of the page that comes later", async () => {
  const { LATER } = await import("../../../www/offline/register.js");
  const files = await readdir(mounts["/"], { recursive: true, withFileTypes: true });
  const names = files
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(mounts["/"], path.join(entry.parentPath, entry.name)).split(path.sep).join("/"));
  // The first view's files are kept as the page has loaded them; the benchmark and the health of a model are other pages.
  const first = ["index.html", "main.js", "style.css", "facts.js", "format.js", "sampling.js", "speech.js", "speed.js"];
  const others = ["support.js", "views.js", "weights.js", "models/sources.js", "offline/register.js", "sw.js"];
  const pages = [...(await ownFiles("bench")), ...(await ownFiles("health"))].filter(
    (name) => ![...first, ...others].includes(name),
  );
  assert.ok(pages.includes("heat.js") && pages.includes("watched.js"), pages.join());
  assert.deepEqual(
    names
      .filter((name) => ![...first, ...others].includes(name) && (LATER.includes(name) || !pages.includes(name)))
      .sort(),
    [...LATER].sort(),
  );
});

/** What a page loads at once: its document, styles and modules, with what those import. */
async function ownFiles(page) {
  const found = new Set([`${page}.html`]);
  for (const name of found) {
    const text = await readFile(path.join(mounts["/"], name), "utf8");
    const used = name.endsWith(".html") ? /(?:src|href)="([^":]+\.(?:js|css))"/g : /from "([^"]+)"/g;
    if (!/\.(html|js)$/.test(name)) continue;
    for (const [, other] of text.matchAll(used)) {
      const local = path.posix.join(path.posix.dirname(name), other);
      if (!local.startsWith("ternlight/")) found.add(local);
    }
  }
  return found;
}

test("the manifest is one that a browser installs", async (context) => {
  const page = await open(context);
  const devtools = await page.page.context().newCDPSession(page.page);
  const { errors, data } = await devtools.send("Page.getAppManifest");
  assert.deepEqual(errors, []);
  const manifest = JSON.parse(data);
  assert.deepEqual([manifest.name, manifest.display, manifest.start_url], ["ternlight", "standalone", "./"]);
  // Pictures for systems that take no SVG, one of them for those that cut icons to a shape of their own.
  const pictures = manifest.icons.filter(({ type }) => type === "image/png");
  assert.deepEqual(
    pictures.map(({ sizes, purpose }) => `${sizes} ${purpose}`),
    ["192x192 any", "512x512 any", "512x512 maskable"],
  );
  const touch = await page.page.locator("link[rel=apple-touch-icon]").getAttribute("href");
  for (const { src, sizes, purpose } of [...pictures, { src: touch, sizes: "180x180", purpose: "maskable" }]) {
    const [found, corner, middle] = await page.page.evaluate(async (src) => {
      const bitmap = await createImageBitmap(await (await fetch(src)).blob());
      const { width, height } = bitmap;
      const canvas = new OffscreenCanvas(width, height).getContext("2d");
      canvas.drawImage(bitmap, 0, 0);
      const at = (x, y) => canvas.getImageData(x, y, 1, 1).data[3];
      const inside = canvas.getImageData(0.29 * width, 0.71 * height, 1, 1).data;
      return [`${width}x${height}`, at(0, 0), [...inside]];
    }, src);
    assert.equal(found, sizes);
    assert.equal(corner, purpose === "maskable" ? 255 : 0, `${src}: its ground`);
    assert.deepEqual(middle, [0x1b, 0x6d, 0x92, 255], `${src}: the square for −1`);
  }
  const { installabilityErrors } = await devtools.send("Page.getInstallabilityErrors");
  // A context of tests is private, and those install nothing.
  assert.deepEqual(
    installabilityErrors.filter(({ errorId }) => errorId !== "in-incognito"),
    [],
  );
});
