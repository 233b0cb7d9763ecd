/** `<ternlight-chat>` in pages as their authors write them: one script tag, or a module's import. */
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { isolation, launch, serve } from "../package/support.mjs";

const pkg = fileURLToPath(new URL("../../", import.meta.url));
const tiny = fileURLToPath(new URL("../../../tests/golden/gguf/llama_bitlinear.TQ2_0.gguf", import.meta.url));
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const strict = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src data:";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
});
after(async () => {
  await browser?.close();
  await rm(folder, { recursive: true, force: true });
});

const mounts = () => ({ "/": folder, "/ternlight/": pkg, "/tiny.gguf": tiny });

/** Opens a page with this body; `tag` is its only script. Events of the elements gather in `told`. */
async function open(context, body, { tag, headers = isolation, ...options } = {}) {
  const asked = [];
  const server = await serve({ mounts: mounts(), headers, asked });
  context.after(() => server.close());
  const script = tag ?? '<script type="module" src="/ternlight/dist/chat-element.js"></script>';
  const page = `<!doctype html><html lang="en"><meta charset="utf-8" /><title>test</title><link rel="icon" href="data:," />
<main><h1>A page</h1>${body}</main>${script}</html>`;
  await writeFile(path.join(folder, "index.html"), page);
  const session = await browser.newContext({ viewport: { width: 480, height: 640 }, ...options });
  context.after(() => session.close());
  const tab = await session.newPage();
  const complaints = [];
  tab.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  tab.on("pageerror", (error) => complaints.push(error.message));
  await tab.addInitScript(() => {
    globalThis.told = [];
    addEventListener("DOMContentLoaded", () => {
      for (const element of document.querySelectorAll("ternlight-chat")) {
        element.addEventListener("ready", ({ detail }) =>
          globalThis.told.push(["ready", detail.model.info.architecture]),
        );
        element.addEventListener("answer", ({ detail }) =>
          globalThis.told.push(["answer", detail.text, detail.finished.finishReason]),
        );
        element.addEventListener("error", ({ detail }) => globalThis.told.push(["error", detail.error.code]));
      }
    });
  });
  await tab.goto(server.url);
  return new Chat(tab, server.url, complaints, asked);
}

/** The element, its parts found as a screen reader finds them. */
class Chat {
  constructor(page, url, complaints, asked) {
    Object.assign(this, { page, url, complaints, asked });
    this.element = page.locator("ternlight-chat");
    this.input = page.getByRole("textbox", { name: "Write a message" });
    this.log = page.getByRole("log", { name: "Chat" });
    this.button = (name) => page.getByRole("button", { name });
  }

  async reach(state) {
    const is = (state) => document.querySelector("ternlight-chat").state === state;
    await this.page.waitForFunction(is, state, { timeout: 30_000 }).catch(async (cause) => {
      const found = await this.element.evaluate(({ state, shadowRoot }) => `${state}: ${shadowRoot.textContent}`);
      throw new Error(`not ${state}, but ${found}\n${this.complaints.join("\n")}`, { cause });
    });
  }

  told = () => this.page.evaluate(() => globalThis.told);
  texts = (role) => this.page.locator(`[part="message ${role}"] [part=text]`).allInnerTexts();

  async ask(text) {
    const before = (await this.told()).length;
    await this.input.fill(text);
    await this.page.keyboard.press("Enter");
    // A short answer may have ended when a busy page is looked at.
    const asked = (before) =>
      document.querySelector("ternlight-chat").state === "answering" || globalThis.told.length > before;
    await this.page.waitForFunction(asked, before);
  }

  /** What axe-core finds wrong, at the strictest level that it has rules for. */
  async accessible(state) {
    await this.page.evaluate(axe);
    const { violations, passes } = await this.page.evaluate(() => globalThis.axe.run());
    const found = violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => [id, html, failureSummary]),
    );
    assert.deepEqual(found, [], state);
    assert.ok(
      passes.some(({ id }) => id === "color-contrast"),
      `${state}: contrast was looked at`,
    );
  }
}

const demo = '<ternlight-chat src="demo"></ternlight-chat>';

test("one script tag under a strict policy: a question, a streamed answer, events", async (context) => {
  const chat = await open(context, demo, { headers: { ...isolation, "content-security-policy": strict } });
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    // Longer than a busy page is away: what has come meanwhile is shown at once.
    element.chatOptions = { temperature: 0, maxTokens: 1_000 };
    globalThis.lengths = new Set();
    const note = () =>
      globalThis.lengths.add(element.shadowRoot.querySelector("[part~=assistant]")?.textContent.length);
    new MutationObserver(note).observe(element.shadowRoot, { childList: true, characterData: true, subtree: true });
  });
  await chat.ask("Once upon a time");
  await chat.reach("ready");
  const told = await chat.told();
  assert.deepEqual(told[0], ["ready", "BitNetForCausalLM"]);
  assert.match(told[1][1], /^ there lived a man who had a wife/);
  assert.equal(told[1][2], "length");
  assert.ok((await chat.page.evaluate(() => globalThis.lengths.size)) > 3, "the answer grows");
  assert.deepEqual(await chat.texts("user"), ["Once upon a time"]);
  assert.equal((await chat.texts("assistant"))[0].replace(/\s+/g, " ").trim(), told[1][1].replace(/\s+/g, " ").trim());
  // The next question sees the story so far.
  await chat.ask(" And then");
  await chat.reach("ready");
  const messages = await chat.element.evaluate(({ messages }) => messages.map(({ role }) => role));
  assert.deepEqual(messages, ["user", "assistant", "user", "assistant"]);
  assert.deepEqual(chat.complaints, []);
});

const allowing = (origin) =>
  `default-src 'self'; script-src 'self' 'wasm-unsafe-eval' ${origin}; connect-src 'self' ${origin}; worker-src ${origin} blob:; img-src data:`;

test("the tag alone, from another origin, on one thread and on several", async (context) => {
  const headers = { "access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin" };
  const other = await serve({ mounts: { "/": pkg }, headers });
  context.after(() => other.close());
  for (const [headers, flavour] of [
    [isolation, /^(threads|single)-relaxed$/],
    [{}, /^single-relaxed$/],
    // As the guide has it.
    [{ "content-security-policy": allowing(new URL(other.url).origin) }, /^single-relaxed$/],
  ]) {
    const tag = `<script type="module" crossorigin src="${other.url}dist/chat-element.js"></script>`;
    const chat = await open(context, demo, { tag, headers });
    await chat.reach("ready");
    assert.match(await chat.element.evaluate(({ model }) => model.info.flavour), flavour);
    // From inside of the page, which sees the button at once: a small model may be done before a click from here comes.
    const stopped = chat.element.evaluate(async (element) => {
      const stop = element.shadowRoot.querySelector("[part=stop]");
      while (!stop.checkVisibility()) await new Promise((resolve) => setTimeout(resolve));
      stop.click();
    });
    await chat.ask("Once upon a time");
    await stopped;
    await chat.reach("ready");
    assert.deepEqual(chat.complaints, []);
  }
});

test("a page asks for no more than the script before there is a model to load", async (context) => {
  const chat = await open(context, "<ternlight-chat></ternlight-chat>");
  await chat.reach("empty");
  assert.deepEqual(
    chat.asked.filter((name) => name.startsWith("/ternlight")),
    ["/ternlight/dist/chat-element.js"],
  );
  const size = gzipSync(await readFile(`${pkg}dist/chat-element.js`), { level: 9 }).length;
  context.diagnostic(`${size} bytes gzipped`);
  assert.ok(size < 16_000, `${size} bytes`);
  assert.equal(await chat.button("Send").getAttribute("aria-disabled"), "true");
  await chat.input.fill("Hello");
  await chat.page.keyboard.press("Enter");
  assert.equal(await chat.page.getByRole("status").innerText(), "The model is not loaded yet");
  assert.equal(await chat.input.inputValue(), "Hello");
  // A property is the attribute.
  await chat.element.evaluate((element) => Object.assign(element, { src: "demo", system: "Be brief." }));
  await chat.reach("ready");
  assert.equal(await chat.element.getAttribute("src"), "demo");
  assert.equal(await chat.element.getAttribute("system"), "Be brief.");
});

test("confirm asks no server before the button; a download can be cancelled, and begun again", async (context) => {
  const chat = await open(context, '<ternlight-chat src="/tiny.gguf" confirm></ternlight-chat>');
  await chat.reach("confirm");
  assert.deepEqual(
    chat.asked.filter((name) => /gguf|index\.js|worker/.test(name)),
    [],
  );
  // The download is held until it has been cancelled.
  let held = true;
  await chat.page.route("**/tiny.gguf", async (route) => {
    while (held && route.request().headers().range !== undefined)
      await new Promise((resolve) => setTimeout(resolve, 50));
    await route.continue().catch(() => {});
  });
  await chat.button("Load the model").focus();
  await chat.page.keyboard.press("Enter");
  await chat.reach("loading");
  assert.equal(await chat.page.getByRole("progressbar").count(), 1);
  assert.equal(
    await chat.button("Cancel").evaluate((one) => one.getRootNode().activeElement === one),
    true,
    "the focus stays",
  );
  await chat.accessible("loading");
  await chat.page.keyboard.press("Enter");
  await chat.reach("confirm");
  held = false;
  await chat.button("Load the model").click();
  await chat.reach("ready");
  assert.equal(
    await chat.page.evaluate(() => document.querySelector("ternlight-chat").shadowRoot.activeElement?.tagName),
    "TEXTAREA",
  );
});

test("a large model is asked about with its size, unless it is kept already", async (context) => {
  const chat = await open(context, "<ternlight-chat></ternlight-chat>");
  // As large as its header says: the engine that the element imports is wrapped, which reads the file of 487 kB.
  const wrapped = `export * from "./whole.js"; import { canRun as known } from "./whole.js";
    export const canRun = async (...given) => { const found = await known(...given); return { ...found, needed: { ...found.needed, weights: 1.19e9 } }; };`;
  await chat.page.route("**/dist/index.js", (route) =>
    route.fulfill({ contentType: "text/javascript", body: wrapped, headers: isolation }),
  );
  await chat.page.route("**/dist/whole.js", async (route) =>
    route.fulfill({
      contentType: "text/javascript",
      body: await readFile(`${pkg}dist/index.js`, "utf8"),
      headers: isolation,
    }),
  );
  await chat.element.evaluate((element) => element.setAttribute("src", "/tiny.gguf"));
  await chat.reach("confirm");
  assert.match(await chat.page.locator("[part~=confirm]").innerText(), /downloaded first: 1\.2 GB, once\./);
  await chat.accessible("confirm");
  await chat.button("Load the model").click();
  await chat.reach("ready");
  // Now it is in the browser's storage.
  await chat.element.evaluate(async (element) => {
    element.src = "";
    await new Promise((resolve) => setTimeout(resolve, 100));
    element.src = "/tiny.gguf";
  });
  await chat.reach("ready");
});

test("what a server answers is told in words that say what to do", async (context) => {
  const chat = await open(context, "<ternlight-chat></ternlight-chat>");
  const answers = [
    [401, "GatedRepo", /is gated: its owner wants terms/],
    [403, null, /does not give this model to everybody/],
    [401, "RepoNotFound", /There is no model at this address/],
    [429, null, /too many requests\. Try again later/],
    [503, null, /The server has failed\. Try again later/],
  ];
  for (const [index, [status, reason, said]] of answers.entries()) {
    // The hub's reason, and a wait that ends the tries.
    const headers = { "retry-after": "3600", ...(reason && { "x-error-code": reason }) };
    await chat.page.route(`**/${index}.gguf`, (route) => route.fulfill({ status, headers }));
    await chat.element.evaluate((element, index) => element.setAttribute("src", `/${index}.gguf`), index);
    await chat.page.waitForFunction((count) => globalThis.told.length === count, index + 1);
    assert.match(await chat.page.getByRole("alert").innerText(), said, `${status} ${reason}`);
  }
});

test("errors in plain words, with another try; the page hears of them", async (context) => {
  const chat = await open(context, '<ternlight-chat src="/absent.gguf"></ternlight-chat>');
  await chat.reach("error");
  assert.equal(await chat.page.getByRole("alert").innerText(), "There is no model at this address.");
  assert.deepEqual(await chat.told(), [["error", "NotFound"]]);
  await chat.accessible("error");
  await chat.page.getByText("Details").click();
  assert.match(await chat.page.locator("details").innerText(), /NotFound: .*absent\.gguf/);
  // On the server: a route that is set while a worker ends waits for that worker for ever.
  const late = path.join(folder, "absent.gguf");
  await copyFile(tiny, late);
  context.after(() => rm(late));
  await chat.button("Try again").click();
  await chat.reach("ready");
  // A question that cannot be answered goes back to who asked, and can be asked again.
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 4, seed: 1, onContextFull: "error" };
  });
  await chat.input.fill("word ".repeat(3000));
  await chat.button("Send").click();
  await chat.page.getByRole("alert").waitFor();
  assert.match(await chat.page.getByRole("alert").innerText(), /more text than the model can read/);
  assert.deepEqual(
    (await chat.told()).slice(1).map(([name, what]) => [name, what]),
    [
      ["ready", "llama"],
      ["error", "ContextFull"],
    ],
  );
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 4, seed: 1, onContextFull: "error", truncate: "left" };
  });
  await chat.button("Try again").click();
  await chat.page.waitForFunction(() => globalThis.told.at(-1)[0] === "answer");
  assert.equal(await chat.page.getByRole("alert").count(), 0);
  assert.equal((await chat.texts("user")).length, 1);
});

test("a question that is too long is refused; a long conversation leaves out its oldest turns", async (context) => {
  const chat = await open(context, '<ternlight-chat src="/tiny.gguf" system="Be brief."></ternlight-chat>');
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 4, seed: 1, ignoreEos: true };
    const turn = (_, i) => ({ role: i % 2 ? "assistant" : "user", content: "word ".repeat(40) });
    element.messages = Array.from({ length: 2 * Math.ceil(element.model.info.contextLength / 40) }, turn);
    element.addEventListener("answer", ({ detail }) => (globalThis.dropped = detail.finished.droppedMessages));
  });
  const long = "word ".repeat(3000).trim();
  await chat.input.fill(long);
  await chat.button("Send").click();
  const alert = chat.page.getByRole("alert");
  assert.match(await alert.innerText(), /more text than the model can read at once\. Shorten the message/);
  await chat.page.getByText("Details").click();
  assert.match(
    await chat.page.locator("details").innerText(),
    /ContextFull: the message has \d+ tokens: expected at most/,
  );
  assert.equal(await chat.input.inputValue(), long);
  await chat.ask("word");
  await chat.reach("ready");
  assert.equal(await alert.count(), 0);
  assert.ok((await chat.page.evaluate(() => globalThis.dropped)) > 0);
  assert.equal((await chat.texts("user")).at(-1), "word");
  // A page may have its own way, the engine's ones among them.
  await chat.element.evaluate((element) => {
    element.chatOptions = { ...element.chatOptions, truncate: "left" };
  });
  await chat.ask(long);
  await chat.reach("ready");
  assert.equal(await alert.count(), 0);
});

test("what is typed meanwhile stays where something else is asked", async (context) => {
  const chat = await open(context, demo);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 0.5 };
  });
  await chat.input.fill("Once upon a time");
  await chat.page.keyboard.press("Enter");
  await chat.page.getByRole("alert").waitFor();
  assert.equal(await chat.input.inputValue(), "");
  await chat.input.fill("And then?");
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 4 };
  });
  await chat.button("Try again").click();
  await chat.page.waitForFunction(() => globalThis.told.at(-1)[0] === "answer");
  assert.equal(await chat.input.inputValue(), "And then?");
  await chat.element.evaluate((element) => element.send("A question of the page"));
  assert.equal(await chat.input.inputValue(), "And then?");
  assert.deepEqual(await chat.texts("user"), ["Once upon a time", "A question of the page"]);
});

test("Stop and Escape end an answer with what there is; the focus stays in the chat", async (context) => {
  const chat = await open(context, demo);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    element.chatOptions = { ignoreEos: true, maxTokens: 10_000 };
  });
  for (const stop of [
    async () => {
      await chat.page.keyboard.press("Tab");
      await chat.page.keyboard.press("Enter");
    },
    () => chat.page.keyboard.press("Escape"),
  ]) {
    await chat.ask("One dark night");
    await chat.page.locator("[part~=assistant] p").last().waitFor();
    await stop();
    await chat.reach("ready");
    const [, , reason] = (await chat.told()).at(-1);
    assert.equal(reason, "stopped");
    assert.equal(await chat.page.getByRole("status").innerText(), "Stopped");
    assert.equal(await chat.button("Stop").count(), 0);
    assert.equal(
      await chat.page.evaluate(() => document.querySelector("ternlight-chat").shadowRoot.activeElement?.tagName),
      "TEXTAREA",
    );
  }
});

test("a stop counts before the answer begins; Escape of an input method is none", async (context) => {
  const chat = await open(context, demo);
  await chat.reach("ready");
  const reason = await chat.element.evaluate(async (element) => {
    element.chatOptions = { ignoreEos: true, maxTokens: 10_000 };
    const answer = element.send("One dark night");
    element.stop();
    return (await answer).finishReason;
  });
  assert.equal(reason, "stopped");
  await chat.ask("One dark night");
  const [early, late] = await chat.element.evaluate(async (element) => {
    const input = element.shadowRoot.querySelector("textarea");
    const pressed = { key: "Escape", bubbles: true, composed: true };
    input.dispatchEvent(new KeyboardEvent("keydown", { ...pressed, isComposing: true }));
    input.dispatchEvent(new KeyboardEvent("keydown", { ...pressed, keyCode: 229 }));
    const stopped = new Promise((resolve) => element.addEventListener("answer", () => resolve("stopped")));
    const goes = new Promise((resolve) => setTimeout(resolve, 300, element.state));
    const early = await Promise.race([stopped, goes]);
    input.dispatchEvent(new KeyboardEvent("keydown", pressed));
    return [early, await stopped];
  });
  assert.deepEqual([early, late], ["answering", "stopped"]);
});

test("a screen reader hears whole sentences, and no text twice", async (context) => {
  const chat = await open(context, demo);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    element.chatOptions = { temperature: 0, maxTokens: 60 };
    [globalThis.heard, globalThis.busy] = [[], []];
    const log = element.shadowRoot.querySelector("[role=log]");
    const busy = () => globalThis.busy.push(log.getAttribute("aria-busy"));
    new MutationObserver(busy).observe(log, { attributeFilter: ["aria-busy"] });
    const speech = element.shadowRoot.querySelector("[aria-live=polite]");
    new MutationObserver((records) => {
      for (const { addedNodes } of records) for (const node of addedNodes) globalThis.heard.push(node.textContent);
    }).observe(speech, { childList: true });
  });
  assert.equal(await chat.log.getAttribute("aria-live"), "off");
  await chat.ask("Once upon a time");
  await chat.reach("ready");
  // An answer may be over before a test can ask.
  assert.deepEqual(await chat.page.evaluate(() => globalThis.busy), ["true", "false"]);
  const heard = await chat.page.evaluate(() => globalThis.heard);
  const [, [, text]] = await chat.told();
  assert.ok(heard.length > 2, heard.join(" | "));
  assert.equal(heard.join(" ").replace(/\s+/g, " "), text.replace(/\s+/g, " ").trim());
  assert.match(heard[0], /\.$/);
});

test("input methods, new lines, right-to-left text, other words", async (context) => {
  const chat = await open(context, `<div dir="rtl">${demo}</div>`);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    element.chatOptions = { maxTokens: 3 };
  });
  // Enter ends the composition of Chinese or Japanese letters, and sends nothing.
  const session = await chat.page.context().newCDPSession(chat.page);
  await chat.input.focus();
  await session.send("Input.imeSetComposition", { text: "にほん", selectionStart: 3, selectionEnd: 3 });
  await session.send("Input.dispatchKeyEvent", {
    type: "rawKeyDown",
    key: "Enter",
    code: "Enter",
    windowsVirtualKeyCode: 229,
  });
  assert.equal((await chat.texts("user")).length, 0);
  await session.send("Input.insertText", { text: "日本" });
  await chat.page.keyboard.press("Shift+Enter");
  await chat.page.keyboard.type("שלום");
  assert.equal(await chat.input.inputValue(), "日本\nשלום");
  await chat.input.fill("שלום, מלך");
  await chat.page.keyboard.press("Enter");
  await chat.page.waitForFunction(() => globalThis.told.at(-1)[0] === "answer");
  const direction = (selector) =>
    chat.page
      .locator(selector)
      .first()
      .evaluate((one) => getComputedStyle(one).direction);
  assert.equal(await direction("[part~=user] [part=text]"), "rtl");
  assert.equal(await direction("[part~=assistant] [part=text]"), "ltr");
  // What a person wrote stands at the end of the line: left, where the page goes from right to left.
  const [log, said] = await Promise.all(
    ["[part=log]", "[part~=user]"].map((one) => chat.page.locator(one).first().boundingBox()),
  );
  assert.ok(said.x - log.x < 40);
  await chat.element.evaluate((element) => {
    element.strings = { send: "Senden", problems: { NotFound: "Kein Modell." } };
    element.setAttribute("placeholder", "Nachricht");
    element.setAttribute("label", "Gespräch");
    element.src = "/absent.gguf";
  });
  await chat.button("Senden").waitFor();
  await chat.page.getByRole("textbox", { name: "Nachricht" }).waitFor();
  await chat.page.getByRole("log", { name: "Gespräch" }).waitFor();
  await chat.page.getByRole("alert").getByText("Kein Modell.").waitFor();
});

test("when it is removed, a load is aborted and a model closed; moved, it goes on", async (context) => {
  const chat = await open(context, `${demo}<section></section>`);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    globalThis.model = element.model;
    element.chatOptions = { ignoreEos: true, maxTokens: 10_000 };
  });
  await chat.ask("One dark night");
  // Moved in the middle of an answer.
  await chat.element.evaluate((element) => document.querySelector("section").append(element));
  await chat.page.waitForTimeout(100);
  assert.equal(
    await chat.element.evaluate(({ state, model }) => state === "answering" && model === globalThis.model),
    true,
  );
  const lost = await chat.element.evaluate(async (element) => {
    globalThis.chat = element;
    element.remove();
    return (await globalThis.model.lost).code;
  });
  assert.equal(lost, "Closed");
  await chat.page.evaluate(() => document.querySelector("main").append(globalThis.chat));
  await chat.reach("ready");
  assert.equal(await chat.element.evaluate(({ messages }) => messages.length), 2, "the conversation is still there");

  // In the middle of a load: the server, which never answers, sees the request end.
  const events = new EventEmitter();
  const silent = createServer((_, response) => {
    events.emit("asked");
    response.on("close", () => events.emit("ended"));
  });
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  context.after(() => silent.close());
  const [asked, ended] = [once(events, "asked"), once(events, "ended")];
  await chat.page.evaluate((address) => {
    globalThis.chat.confirm = true;
    globalThis.chat.src = address;
    globalThis.chat.load();
  }, `http://localhost:${silent.address().port}/held.gguf`);
  await asked;
  await chat.page.evaluate(() => globalThis.chat.remove());
  await ended;
  assert.deepEqual(
    await chat.page.evaluate(() => [globalThis.chat.state, globalThis.told.filter(([name]) => name === "error")]),
    ["empty", []],
  );
});

test("a conversation that a page has kept goes on", async (context) => {
  const body = `<script type="module">
    const chat = document.createElement("ternlight-chat");
    // Set before the element is defined.
    chat.src = "/tiny.gguf";
    chat.system = "Be brief.";
    chat.messages = [{ role: "user", content: "Hello" }, { role: "assistant", content: "Hi" }];
    chat.chatOptions = { maxTokens: 4, seed: 3 };
    document.querySelector("main").append(chat);
  </script>`;
  const chat = await open(context, body);
  await chat.reach("ready");
  assert.deepEqual(await chat.texts("assistant"), ["Hi"]);
  await chat.input.fill("And?");
  await chat.button("Send").click();
  await chat.page.waitForFunction(() => document.querySelector("ternlight-chat").messages.length === 4);
  // In the middle of an answer, which belongs to another conversation then.
  await chat.element.evaluate((element) => {
    element.chatOptions = { ignoreEos: true, maxTokens: 10_000 };
    void element.send("More");
    element.messages = [];
  });
  await chat.reach("ready");
  assert.equal(await chat.button("Send").getAttribute("aria-disabled"), "false");
  assert.equal(await chat.button("Stop").count(), 0);
});

test("light and dark follow the page; custom properties and parts change the look", async (context) => {
  const style = `<style>
    :root { color-scheme: light dark }
    ternlight-chat.own { --ternlight-chat-background: rgb(1, 2, 3); --ternlight-chat-color: rgb(250, 251, 252); --ternlight-chat-user: rgb(1, 2, 3);
      --ternlight-chat-muted: #ccc; --ternlight-chat-accent: #fff; --ternlight-chat-on-accent: #000 }
    ternlight-chat.own::part(send) { border-radius: 7px }
  </style>`;
  for (const colorScheme of ["light", "dark"]) {
    const chat = await open(context, style + demo, { colorScheme });
    await chat.reach("ready");
    await chat.element.evaluate((element) => {
      element.chatOptions = { temperature: 0, maxTokens: 20 };
    });
    await chat.ask("Once upon a time");
    await chat.reach("ready");
    await chat.accessible(`${colorScheme}, with an answer`);
    const paint = () => chat.element.evaluate((element) => getComputedStyle(element).backgroundColor);
    assert.equal(await paint(), colorScheme === "light" ? "rgb(255, 255, 255)" : "rgb(16, 27, 34)");
    await chat.element.evaluate((element) => element.classList.add("own"));
    assert.equal(await paint(), "rgb(1, 2, 3)");
    assert.equal(await chat.button("Send").evaluate((one) => getComputedStyle(one).borderRadius), "7px");
    await chat.accessible(`${colorScheme}, with colours of the page's own`);
  }
});

test("narrow and at 200 %, nothing is cut off", async (context) => {
  const chat = await open(context, demo, { viewport: { width: 320, height: 480 } });
  await chat.reach("ready");
  await chat.page.evaluate(() => {
    document.documentElement.style.fontSize = "200%";
  });
  await chat.element.evaluate((element) => {
    element.chatOptions = { temperature: 0, maxTokens: 60 };
  });
  await chat.ask("Donaudampfschifffahrtsgesellschaftskapitänsmütze ".repeat(2));
  await chat.reach("ready");
  const wide = await chat.page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  const inside = await chat.log.evaluate((log) => log.scrollWidth > log.clientWidth);
  assert.deepEqual([wide, inside], [false, false]);
});

test("answers are Markdown, and nothing that they say becomes the page's", async (context) => {
  const chat = await open(context, demo);
  await chat.reach("ready");
  await chat.element.evaluate((element) => {
    const content =
      "# Title\n\n1. **one**\n2. `two`\n\n<img src=x onerror=alert(1)> [go](javascript:alert(1)) ![p](https://example.com/p.png)";
    element.messages = [
      { role: "user", content: "**as it is** <b>" },
      { role: "assistant", content },
    ];
  });
  assert.deepEqual(await chat.texts("user"), ["**as it is** <b>"]);
  const answer = chat.page.locator("[part~=assistant]");
  assert.equal(await answer.getByRole("heading", { name: "Title" }).count(), 1);
  assert.equal(await answer.getByRole("listitem").count(), 2);
  assert.equal(await answer.locator("img, script, a[href]").count(), 0);
  await chat.accessible("Markdown");
  assert.deepEqual(chat.complaints, []);
});

test("a server that renders pages may import it", async () => {
  const { TernlightChat } = await import(`${pkg}dist/chat-element.js`);
  assert.equal(typeof TernlightChat, "function");
});
