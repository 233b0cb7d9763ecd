/** The demo page as it is served, one browser for all tests, and model files, good and bad. */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { isolation, policy, serve } from "../../../scripts/serve.mjs";
import { launch } from "../package/support.mjs";

const root = fileURLToPath(new URL("../../../", import.meta.url));
export const golden = (...names) => path.join(root, "tests", "golden", ...names);
export const mounts = { "/": path.join(root, "www"), "/ternlight/": path.join(root, "pkg") };

/** A browser, and what a test leaves behind closed with it. */
export async function start() {
  const browser = await launch();
  const servers = [];
  async function server({ mounts: served = mounts, headers = { ...isolation, ...policy } } = {}) {
    const one = await serve({ mounts: served, headers });
    servers.push(one);
    return one.url;
  }
  const stop = () => Promise.all([browser.close(), ...servers.map((one) => one.close())]);
  return { browser, server, stop, isolated: await server(), plain: await server({ headers: {} }) };
}

/** The page in a context of its own, with what it asked for and complained of. */
export async function visit(context, browser, url, { width = 1280, height = 800, before, offline, ...more } = {}) {
  const session = await browser.newContext({ viewport: { width, height }, ...more });
  context.after(() => session.close());
  const page = await session.newPage();
  const [requests, complaints] = [[], []];
  session.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  await page.addInitScript(() => {
    globalThis.states = [];
    const note = () => globalThis.states.push(document.documentElement.dataset.state);
    new MutationObserver(note).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-state"] });
  });
  // A service worker fetches what a test counts, and answers what a test wants to fail.
  if (!offline) await page.addInitScript(() => Object.defineProperty(navigator, "serviceWorker", { value: undefined }));
  if (before) await page.addInitScript(before);
  await page.goto(url);
  return new Demo(page, requests, complaints);
}

/** What a visitor can see and do. Controls are found as a screen reader finds them. */
class Demo {
  constructor(page, requests, complaints) {
    Object.assign(this, { page, requests, complaints });
    this.prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
    this.generate = page.getByRole("button", { name: "Generate" });
    this.stop = page.getByRole("button", { name: "Stop" });
    this.output = page.getByLabel("Output");
    this.problem = page.getByRole("alert");
    this.status = page.getByRole("status");
    this.files = page.getByLabel("Model files");
  }

  async reach(state) {
    try {
      await this.page.waitForSelector(`:root[data-state="${state}"]`, { timeout: 30_000 });
    } catch (cause) {
      const shown = await this.page.locator("body").innerText();
      throw new Error(`not ${state}:\n${shown}\n${this.complaints.join("\n")}`, { cause });
    }
  }

  /** Every state since the page was opened, or since this was asked before. */
  states() {
    return this.page.evaluate(() => globalThis.states.splice(0));
  }

  async set(values) {
    const { open } = await this.page.getByText("More sampling").evaluate((summary) => summary.parentElement);
    if (!open) await this.page.getByText("More sampling").click();
    for (const [label, value] of Object.entries(values)) await this.page.getByLabel(label).fill(String(value));
  }

  /** Runs to its end, and answers with what stands in the output. */
  async write() {
    await this.states();
    await this.generate.click();
    await this.page.waitForFunction(() => globalThis.states.at(-1) === "ready", null, { timeout: 30_000 });
    assert.deepEqual(await this.states(), ["generating", "ready"]);
    return this.output.innerText();
  }

  /** Gives the page files and waits until it has settled. */
  async choose(files) {
    await this.states();
    await this.files.setInputFiles(files);
    await this.settled();
  }

  async settled() {
    const settled = () => ["ready", "failed"].includes(globalThis.states.at(-1));
    await this.page.waitForFunction(settled, null, { timeout: 30_000 });
    return (await this.states()).at(-1);
  }
}

/** A GGUF of 2 layers with a tokenizer and a template. */
export const tiny = golden("gguf", "llama_bitlinear.TQ2_0.gguf");
const tinyBytes = await readFile(tiny);

/** The same file, with something done to it. */
export function damaged(name, damage) {
  const bytes = Buffer.from(tinyBytes);
  return { name, mimeType: "application/octet-stream", buffer: damage(bytes) ?? bytes };
}

export const file = (name, buffer) => ({ name, mimeType: "application/octet-stream", buffer });

/** Where a GGUF gives the number of a tensor's type: after its name and dimensions. */
export function typeOf(bytes, name) {
  const at = bytes.indexOf(name);
  assert.ok(at > 0, `the file has no ${name}`);
  const dimensions = bytes.readUInt32LE(at + name.length);
  return at + name.length + 4 + 8 * dimensions;
}

/** A Hugging Face folder's files, with something done to the tensors' descriptions or their data. */
export async function damagedFolder(folder, damage) {
  const names = (await readdir(folder)).filter((name) => !name.startsWith("golden"));
  const files = await Promise.all(names.map(async (name) => file(name, await readFile(path.join(folder, name)))));
  const { buffer } = files.find(({ name }) => name === "model.safetensors");
  const length = Number(buffer.readBigUInt64LE(0));
  const header = JSON.parse(buffer.toString("utf8", 8, 8 + length));
  damage(header, buffer.subarray(8 + length));
  buffer.write(JSON.stringify(header).padEnd(length), 8);
  return files;
}

const demoFolder = path.join(root, "pkg", "models", "ternlight-demo");
/** It spells calls as Hermes does. */
const CHAT = `{% if tools %}Answer with <tool_call>{"name": …, "arguments": …}</tool_call>: {{ tools | tojson }}
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`;

/** The demo model's files with a chat template, as a model that chats. */
export async function chatModel() {
  const names = (await readdir(demoFolder)).filter((name) => /\.(json|safetensors)$/.test(name));
  return Promise.all(
    names.map(async (name) => {
      const bytes = await readFile(path.join(demoFolder, name));
      if (name !== "tokenizer_config.json") return file(name, bytes);
      return file(name, Buffer.from(JSON.stringify({ ...JSON.parse(bytes), chat_template: CHAT })));
    }),
  );
}

/** For people: `PICTURES=folder` keeps what the page looks like. */
export async function picture({ page }, name) {
  const { PICTURES } = process.env;
  if (PICTURES) await page.screenshot({ path: `${PICTURES}/${name}.png` });
}
