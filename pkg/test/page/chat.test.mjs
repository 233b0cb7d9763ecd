/** The chat: what is kept of it, what going on costs, and what can be done with each message. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { chatModel, file, picture, start, tiny, visit } from "./support.mjs";

let demo;
let model;
before(async () => {
  [demo, model] = await Promise.all([start(), chatModel()]);
});
after(() => demo?.stop());

/** A page with a model that chats, in a session of its own or in one that is given. */
async function open(context, options, session = null) {
  const browser = session ? { newContext: async () => session } : demo.browser;
  const page = await visit(context, browser, demo.isolated, options);
  await page.reach("ready");
  await page.choose(model);
  await page.set({ "Max tokens": 24, Seed: 1, Temperature: 0 });
  return page;
}

/** Waits until the answer is there. */
async function answered(page, act) {
  await page.states();
  await act();
  await page.page.waitForFunction(() => ["ready", "stopped", "failed"].includes(globalThis.states.at(-1)));
  assert.equal((await page.states()).at(-1), "ready", await page.page.locator("main").innerText());
}

async function say(page, text) {
  await page.prompt.fill(text);
  await answered(page, () => page.prompt.press("Enter"));
}

const turns = (page) => page.page.getByRole("article");
const last = (page) => turns(page).last();
/** The words of a turn, without its buttons. */
const words = (turn) => turn.locator(".body").innerText();
const speed = (page) => last(page).locator(".tools .quiet").last().innerText();
const press = (turn, name) => turn.getByRole("button", { name, exact: true }).click();
const saved = (page) =>
  page.page.evaluate(async () => (await import(new URL("chat/store.js", location.href).href)).savedSizes());

async function openKept(page, title, at = 0) {
  await page.page.locator(".history").evaluate((details) => {
    details.open = true;
  });
  const named = page.page.getByRole("button", { name: title, exact: true }).nth(at);
  await named.click();
  await named.and(page.page.locator("[aria-current=true]")).waitFor();
}

async function importText(page, text) {
  await page.page.locator(".history").evaluate((details) => {
    details.open = true;
  });
  const chooser = page.page.waitForEvent("filechooser");
  await page.page.getByRole("button", { name: "Import…" }).click();
  await (await chooser).setFiles(file("conversations.json", Buffer.from(text)));
}

test("a conversation goes on after a reload, without reading it again", { timeout: 120_000 }, async (context) => {
  const session = await demo.browser.newContext();
  context.after(() => session.close());
  const kept = { newContext: async () => session };
  const first = await visit(context, kept, demo.isolated);
  await first.reach("ready");
  await first.choose(model);
  await first.set({ "Max tokens": 24, Seed: 1, Temperature: 0 });
  await first.page.getByText("System prompt").first().click();
  await first.page
    .getByLabel("System prompt")
    .fill("You tell tales of kings and of their three sons, as they were told of old.");
  await say(first, "Tell me of a king.");
  const answer = await words(last(first));
  assert.match(await speed(first), /^24 tokens · [\d,.]+ tokens\/s · \d+ tokens read$/);
  assert.match(await first.page.locator(".context").innerText(), /^\d+ of 512 tokens of context$/);
  while ((await saved(first)).length === 0) await first.page.waitForTimeout(50);
  await first.page.close();

  const page = await visit(context, kept, demo.isolated);
  await page.reach("ready");
  await page.choose(model);
  await page.set({ "Max tokens": 24, Seed: 1, Temperature: 0 });
  await page.page.getByText("Conversations (1)").click();
  await page.page.getByRole("button", { name: "Tell me of a king.", exact: true }).click();
  await page.page.getByText("Conversation opened").waitFor();
  assert.equal(await turns(page).count(), 2);
  assert.equal(await words(last(page)), answer);
  await say(page, "And then?");
  const [, read, found] = /(\d+) tokens read, (\d+) tokens kept/.exec(await speed(page));
  // The engine has nothing of it in memory: what was found comes from the saved session, whole blocks of 32.
  assert.ok(Number(found) >= 32 && Number(read) < 32 + 16, `${read} read, ${found} found`);
  assert.match(await page.page.getByLabel("System prompt").inputValue(), /three sons/);

  await page.page.getByRole("button", { name: "Delete Tell me of a king." }).click();
  assert.equal(await turns(page).count(), 4, "it asks first");
  await page.page.getByRole("button", { name: "Really? Delete Tell me of a king." }).click();
  await page.page.getByText("None yet").waitFor();
  assert.deepEqual(await saved(page), []);
  assert.deepEqual([...first.complaints, ...page.complaints], []);
});

test("a question is asked again, an answer written again, and no version is lost", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a king.");
  const king = await words(last(page));
  await press(turns(page).first(), "Edit");
  const field = page.page.getByLabel("Your message");
  assert.equal(await field.inputValue(), "Tell me of a king.");
  await field.fill("Tell me of a fox.");
  await answered(page, () => page.page.getByRole("button", { name: "Ask again" }).click());
  assert.equal(await turns(page).count(), 2);
  assert.equal(await words(turns(page).first()), "Tell me of a fox.");
  const fox = await words(last(page));
  assert.notEqual(fox, king);
  assert.match(await turns(page).first().innerText(), /2 of 2/);
  await press(turns(page).first(), "Earlier version");
  assert.equal(await words(last(page)), king);
  await press(turns(page).first(), "Later version");
  assert.equal(await words(last(page)), fox);

  await page.set({ Temperature: 1, Seed: 5 });
  await answered(page, () => press(last(page), "Again: another answer"));
  const again = await words(last(page));
  assert.notEqual(again, fox);
  assert.match(await last(page).innerText(), /2 of 2/);
  await press(last(page), "Earlier version");
  assert.equal(await words(last(page)), fox);
  await say(page, "Go on.");
  assert.equal(await turns(page).count(), 4);
  assert.deepEqual(page.complaints, []);
});

test("a branch goes on from an answer in a chat of its own, and computes nothing again", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a king who had three sons and a daughter, and of what became of them in the end.");
  await say(page, "And then?");
  await press(last(page), "Branch: go on from here in a chat of its own");
  await page.page.getByText("Conversations (2)").waitFor();
  assert.equal(await turns(page).count(), 4);
  await say(page, "Who was it?");
  const [, read, found] = /(\d+) tokens read, (\d+) tokens kept/.exec(await speed(page));
  // The fork holds every token; the last one of the answer was not read by anybody.
  assert.ok(Number(found) > 60 && Number(read) < 20, `${read} read, ${found} found`);
  await page.page.getByText("Conversations (2)").click();
  const both = page.page.locator(".history .title");
  await both.nth(1).click();
  await page.page.getByText("Conversation opened").waitFor();
  assert.equal(await turns(page).count(), 4, "the other one is as it was");
});

test("Enter that ends a composition does not send, and Shift+Enter begins a line", async (context) => {
  const page = await open(context);
  const devtools = await page.page.context().newCDPSession(page.page);
  await page.prompt.focus();
  await devtools.send("Input.imeSetComposition", { text: "にほん", selectionStart: 3, selectionEnd: 3 });
  await page.page.evaluate(() => {
    const field = document.getElementById("prompt");
    const key = (given) =>
      field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...given }));
    key({ isComposing: true });
    // As Safari tells of the key that ended it.
    key({ keyCode: 229 });
  });
  await devtools.send("Input.insertText", { text: "日本" });
  assert.equal(await turns(page).count(), 0);
  await page.prompt.press("Shift+Enter");
  await page.prompt.pressSequentially("語");
  assert.equal(await page.prompt.inputValue(), "日本\n語");
  await answered(page, () => page.prompt.press("Enter"));
  assert.equal(await words(turns(page).first()), "日本\n語");
});

test("a text file goes with the question, and what is no text is refused", async (context) => {
  const page = await open(context);
  const attach = async (given) => {
    const chooser = page.page.waitForEvent("filechooser");
    await page.page.getByRole("button", { name: "Attach a text file…" }).click();
    await (await chooser).setFiles(given);
  };
  await attach(file("photo.png", Buffer.from([0x89, 0x50, 0xff, 0xfe])));
  await page.page.getByText("This file is no text.").waitFor();
  await attach(file("large.txt", Buffer.alloc(1_000_001, 97)));
  await page.page.getByText("This file is too large.").waitFor();
  await attach(file("tale.txt", Buffer.from("<b>The fox</b> and the crow.")));
  await page.page.getByText(/^tale\.txt · 28 bytes/).waitFor();
  await say(page, "What is it about?");
  assert.equal(await page.page.locator(".chip").count(), 0);
  const asked = turns(page).first();
  assert.match(await asked.innerText(), /tale\.txt · 28 characters/);
  await asked.getByText("tale.txt").click();
  assert.equal(await asked.locator("pre").innerText(), "<b>The fox</b> and the crow.");
  assert.match(await words(asked), /What is it about\?/);
});

test("conversations are exported and imported, and a file of another kind is refused", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a king.");
  await page.page.getByText("Conversations (1)").click();
  const coming = page.page.waitForEvent("download");
  await page.page.getByRole("button", { name: "Export all" }).click();
  const text = await readFile(await (await coming).path(), "utf8");
  assert.equal(JSON.parse(text).conversations[0].nodes.length, 2);

  const other = await open(context);
  await importText(other, text);
  await other.page.getByText("1 conversations imported").waitFor();
  await other.page.getByRole("button", { name: "Tell me of a king.", exact: true }).click();
  await other.page.getByText("Conversation opened").waitFor();
  assert.equal(await turns(other).count(), 2);
  await say(other, "And then?");

  const { conversations } = JSON.parse(text);
  const given = (change) => {
    const one = structuredClone(conversations[0]);
    change(one);
    return JSON.stringify({ ternlight: "conversations", version: 1, conversations: [one] });
  };
  for (const [wrong, says] of [
    ["{", /^BadImport: /],
    ["null", /ternlight is not conversations/],
    [JSON.stringify({ ternlight: "conversations", version: 2 }), /version 2 is not 1/],
    [given((one) => (one.nodes[0].parent = 1)), /conversations\[0\]\.nodes\[0\]\.parent is no message before it/],
    [given((one) => (one.nodes[1].role = "system")), /nodes\[1\]\.role is neither/],
    [given((one) => (one.leaf = 7)), /leaf is no message/],
    [given((one) => (one.nodes[0].content = { toString: 1 })), /nodes\[0\]\.content is no text/],
  ]) {
    await importText(other, wrong);
    await other.page.locator("#problem pre").filter({ hasText: says }).waitFor({ state: "attached" });
    assert.match(await other.problem.innerText(), /This file holds no conversations/);
  }
});

test("an answer is Markdown, and hostile ones stay text", async (context) => {
  const page = await open(context, { permissions: ["clipboard-read", "clipboard-write"] });
  const content =
    "# Title\n\n```js\nconst a = 1;\n```\n\n[a](javascript:globalThis.ran=1) <img src=x onerror=globalThis.ran=1> [bank](https://evil.example/)";
  const nodes = [
    { parent: null, role: "user", content: "<img src=x onerror=globalThis.ran=1>" },
    { parent: 0, role: "assistant", content },
  ];
  const one = { title: "<b>bold</b>", system: "", nodes, leaf: 1, changed: 1 };
  await importText(page, JSON.stringify({ ternlight: "conversations", version: 1, conversations: [one] }));
  await page.page.getByRole("button", { name: "<b>bold</b>", exact: true }).click();
  await last(page).getByRole("heading", { name: "Title" }).waitFor();
  assert.match(await words(last(page)), /<img src=x onerror/);
  assert.equal(await page.output.locator("img, script, a[href]").count(), 0);
  assert.equal(await page.page.evaluate(() => globalThis.ran), undefined);
  await picture(page, "hostile");
  await press(last(page), "Copy code");
  assert.equal(await page.page.evaluate(() => navigator.clipboard.readText()), "const a = 1;");
  await press(last(page), "Copy");
  assert.equal(await page.page.evaluate(() => navigator.clipboard.readText()), content);
  const popup = page.page.waitForEvent("popup");
  await page.page.context().route("https://evil.example/**", (route) => route.fulfill({ body: "" }));
  const outside = () => page.requests.filter((url) => !url.startsWith(demo.isolated) && !url.startsWith("blob:"));
  assert.deepEqual(outside(), [], "nothing is asked for before the click");
  await last(page).getByRole("link", { name: "bank (evil.example)" }).click();
  assert.equal(await (await popup).evaluate(() => globalThis.opener), null);
  assert.deepEqual(outside(), ["https://evil.example/"]);
});

test("an answer is stopped, and one that fails leaves the question", async (context) => {
  const page = await open(context);
  await page.set({ "Max tokens": 480 });
  await page.prompt.fill("Tell me a long tale.");
  // In the page, where nothing waits longer than the answer takes.
  await page.page.evaluate(async () => {
    document.getElementById("composer").requestSubmit();
    const written = () => document.querySelector(".assistant .body")?.textContent.length ?? 0;
    while (written() < 40) await new Promise(requestAnimationFrame);
    document.getElementById("stop").click();
  });
  await page.reach("stopped");
  assert.equal(await turns(page).count(), 2);
  assert.match(await page.status.innerText(), /^Stopped after/);
  // More than the context holds.
  const long = "king ".repeat(600);
  await page.prompt.fill(long);
  await page.prompt.press("Enter");
  await page.reach("failed");
  assert.match(await page.problem.innerText(), /more text than the model can hold/);
  assert.equal(await page.prompt.inputValue(), long);
  assert.equal(await turns(page).count(), 2);
  await page.set({ "Max tokens": 12 });
  await say(page, "And then?");
  assert.equal(await turns(page).count(), 4);
});

test("a chat goes on when its context is full, and says what the model no longer sees", async (context) => {
  const page = await open(context);
  await page.set({ "Max tokens": 200 });
  for (let i = 1; i <= 4; i++) {
    await say(page, `Tell me of king number ${i}.`);
    assert.equal(await turns(page).count(), 2 * i);
  }
  assert.match(await speed(page), /the context is full: the model no longer sees the oldest \d messages/);
  // What is asked must fit by itself.
  await page.prompt.fill("king ".repeat(600));
  await page.prompt.press("Enter");
  await page.reach("failed");
  assert.match(await page.problem.innerText(), /more text than the model can hold\.\s+Shorten the prompt/);
  assert.deepEqual(page.complaints, []);
});

/** What the browser tells a page that is no longer seen. Runs in the page. */
const hide = () => {
  Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
  delete document.hidden;
};

const ended = (page) => page.page.waitForFunction(() => globalThis.states.at(-1) !== "generating");

test("a page that is hidden during an answer saves behind it", async (context) => {
  const page = await open(context);
  await page.set({ "Max tokens": 450 });
  await page.states();
  await page.prompt.fill("Tell me of a king.");
  await page.page.evaluate(`globalThis.hide = ${hide}`);
  // At once: the answer does not take long.
  const state = await page.page.evaluate(async () => {
    document.getElementById("composer").requestSubmit();
    while (!document.querySelector(".assistant .body")?.textContent) await new Promise(requestAnimationFrame);
    for (let i = 0; i < 3; i++) globalThis.hide();
    return document.documentElement.dataset.state;
  });
  assert.equal(state, "generating");
  await ended(page);
  assert.deepEqual(await page.states(), ["generating", "ready"]);
  assert.equal(await page.problem.isHidden(), true);
  while ((await saved(page)).length === 0) await page.page.waitForTimeout(50);
});

test("each model that answers in a conversation has its own saved session", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a king who had three sons and a daughter, and of what became of them in the end.");
  while ((await saved(page)).length < 1) await page.page.waitForTimeout(50);
  const openAgain = async (files) => {
    await page.choose(files);
    await page.set({ "Max tokens": 8, Seed: 1, Temperature: 0 });
    await page.page.locator(".history").evaluate((details) => {
      details.open = true;
    });
    await page.page.locator(".history .title").click();
    await page.page.getByText("Conversation opened").waitFor();
  };
  await openAgain(tiny);
  await say(page, "And then?");
  while ((await saved(page)).length < 2) await page.page.waitForTimeout(50);
  await openAgain(model);
  await say(page, "And in the end?");
  assert.match(await speed(page), /\d+ tokens read, (32|64) tokens kept/);
  await page.page.waitForTimeout(300);
  assert.equal((await saved(page)).length, 2);
  await page.page.getByRole("button", { name: /^Delete Tell me/ }).click();
  await page.page.getByRole("button", { name: /^Really\? Delete Tell me/ }).click();
  await page.page.getByText("None yet").waitFor();
  assert.deepEqual(await saved(page), []);
  assert.deepEqual(page.complaints, []);
});

test("conversations that are deleted during an answer are gone, and the answer is not", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a fox.");
  await page.page.getByRole("button", { name: "New chat" }).click();
  await page.set({ "Max tokens": 450 });
  await page.page.getByRole("button", { name: "Storage" }).click();
  await page.page.getByRole("button", { name: "Delete: Conversations" }).waitFor();
  await page.prompt.fill("Tell me of a king.");
  // At once: the answer does not take long.
  const said = await page.page.evaluate(async () => {
    document.getElementById("composer").requestSubmit();
    while (!document.querySelector(".assistant .body")?.textContent) await new Promise(requestAnimationFrame);
    const remove = document.querySelector("[aria-label='Delete: Conversations']");
    remove.click();
    remove.click();
    while (document.documentElement.dataset.state === "generating") {
      const { textContent } = document.getElementById("status");
      if (/stays/.test(textContent)) return textContent;
      await new Promise(requestAnimationFrame);
    }
  });
  assert.equal(said, "The conversation that is being answered stays");
  await ended(page);
  assert.equal(await turns(page).count(), 2);
  await page.page.getByText("Conversations (1)").waitFor();
  assert.ok((await words(last(page))).length > 8);
  // Nothing of it is saved behind its deletion.
  for (let i = 0; i < 2; i++) await page.page.getByRole("button", { name: "Storage" }).click();
  await page.page.getByRole("button", { name: "Delete: Conversations" }).click();
  await page.page.getByRole("button", { name: "Really? Delete: Conversations" }).click();
  await page.page.getByText("0 in this browser").waitFor();
  assert.equal(await turns(page).count(), 0);
  await page.page.evaluate(hide);
  await page.page.waitForTimeout(300);
  assert.deepEqual(await saved(page), []);
});

test("a browser that keeps nothing says so, and the chat goes on", async (context) => {
  const before = () =>
    Object.defineProperty(globalThis, "indexedDB", {
      get: () => ({
        open: () => {
          throw new DOMException("blocked", "SecurityError");
        },
      }),
    });
  const page = await open(context, { before });
  await page.prompt.fill("Tell me of a king.");
  await page.prompt.press("Enter");
  await page.page.getByText("This browser keeps nothing for this page.").waitFor();
  await ended(page);
  assert.equal(await turns(page).count(), 2);
});

test("two tabs that go on with one conversation both keep what was said in them", async (context) => {
  const session = await demo.browser.newContext();
  context.after(() => session.close());
  const one = await open(context, {}, session);
  await say(one, "Tell me of a king.");
  const other = await open(context, {}, session);
  await openKept(other, "Tell me of a king.");
  await say(other, "And his sons?");
  await say(one, "And his daughter?");
  await one.page.getByText(/^Another tab went on with this chat/).waitFor();
  await say(one, "Go on.");
  await one.page.getByText("Conversations (2)").waitFor();
  await other.page.reload();
  await other.reach("ready");
  await other.choose(model);
  const questions = [];
  for (const at of [0, 1]) {
    await openKept(other, "Tell me of a king.", at);
    questions.push(await other.page.locator(".turn.user .body").allInnerTexts());
  }
  assert.deepEqual(questions, [
    ["Tell me of a king.", "And his daughter?", "Go on."],
    ["Tell me of a king.", "And his sons?"],
  ]);
  assert.deepEqual([...one.complaints, ...other.complaints], []);
});

test("a question whose answer the page did not live to see is kept, and can be answered", async (context) => {
  const session = await demo.browser.newContext();
  context.after(() => session.close());
  const page = await open(context, {}, session);
  await say(page, "Tell me of a king.");
  await page.set({ "Max tokens": 480 });
  await page.prompt.fill("And then?");
  // At once: the answer does not take long.
  await page.page
    .evaluate(async () => {
      document.getElementById("composer").requestSubmit();
      while (!document.querySelectorAll(".assistant .body")[1]?.textContent) await new Promise(requestAnimationFrame);
      location.reload();
      await new Promise(() => {});
    })
    .catch(() => {});
  await page.reach("ready");
  await page.choose(model);
  await page.set({ "Max tokens": 8, Seed: 1, Temperature: 0 });
  await openKept(page, "Tell me of a king.");
  assert.equal(await turns(page).count(), 3);
  assert.equal(await words(last(page)), "And then?");
  await answered(page, () => press(last(page), "Answer: it has none yet"));
  assert.equal(await turns(page).count(), 4);
  assert.equal(await page.page.getByRole("button", { name: "Answer: it has none yet" }).count(), 0);
});

test("a question that fails is not kept, and one behind a question without an answer takes its place", async (context) => {
  const page = await open(context);
  const nodes = [{ parent: null, role: "user", content: "Tell me of a king." }];
  const one = { title: "One", system: "", nodes, leaf: 0, changed: 1 };
  await importText(page, JSON.stringify({ ternlight: "conversations", version: 1, conversations: [one] }));
  await page.prompt.fill("king ".repeat(600));
  await page.prompt.press("Enter");
  await page.reach("failed");
  await page.page.getByText("Conversations (1)").waitFor();
  await page.page.getByRole("button", { name: "One", exact: true }).click();
  await page.page.getByText("Conversation opened").waitFor();
  await say(page, "Tell me of a fox.");
  assert.equal(await turns(page).count(), 2);
  assert.match(await turns(page).first().innerText(), /Tell me of a fox\.\s.*2 of 2/s);
});

test("nothing is sent of an empty message, and a new chat ends what was said of it", async (context) => {
  const page = await open(context);
  const refused = () => page.page.getByText("There is nothing to send.").waitFor();
  await page.prompt.fill("  ");
  await page.prompt.press("Enter");
  await refused();
  assert.equal(await turns(page).count(), 0);
  await page.page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.problem.count(), 0);
  await say(page, "Tell me of a king.");
  await press(turns(page).first(), "Edit");
  await page.page.getByLabel("Your message").fill("");
  await page.page.getByRole("button", { name: "Ask again" }).click();
  await refused();
  assert.equal(await turns(page).count(), 2);
  assert.equal(await page.page.getByLabel("Your message").count(), 1);
});

test("Ctrl+Enter in a message that is edited asks it again", async (context) => {
  const page = await open(context);
  await say(page, "Tell me of a king.");
  await press(turns(page).first(), "Edit");
  await page.page.getByLabel("Your message").fill("Tell me of a fox.");
  await page.prompt.fill("Not this.");
  await answered(page, () => page.page.getByLabel("Your message").press("Control+Enter"));
  assert.equal(await turns(page).count(), 2);
  assert.equal(await words(turns(page).first()), "Tell me of a fox.");
  assert.equal(await page.prompt.inputValue(), "Not this.");
});

test("the focus stays where the reader is", async (context) => {
  const page = await open(context);
  const focused = () =>
    page.page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent);
  await say(page, "Tell me of a king.");
  for (const leave of ["Escape", "Enter"]) {
    await press(turns(page).first(), "Edit");
    if (leave === "Enter") await page.page.getByRole("button", { name: "Cancel" }).focus();
    await page.page.keyboard.press(leave);
    assert.equal(await focused(), "Edit");
  }
  await answered(page, () => press(last(page), "Again: another answer"));
  assert.equal(await focused(), "Output");
  await answered(page, () => press(last(page), "Again: another answer"));
  for (const [pressed, then] of [
    ["Earlier version", "Earlier version"],
    ["Earlier version", "Later version"],
  ]) {
    await press(last(page), pressed);
    assert.equal(await focused(), then);
  }
  await page.page.getByText("Conversations (1)").click();
  await page.page.locator(".history .title").click();
  await page.page.getByText("Conversation opened").waitFor();
  assert.equal(await page.page.evaluate(() => document.activeElement.id), "prompt");
  await page.page.getByRole("button", { name: /^Delete Tell me/ }).click();
  await page.page.getByRole("button", { name: /^Really\? Delete Tell me/ }).click();
  await page.page.getByText("None yet").waitFor();
  assert.equal(await focused(), "Conversations");
});
