/** What Lighthouse would look at: accessibility in every state, first paint, shifts of the layout; and narrow, zoomed and right to left. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chatModel, file, picture, start, visit } from "./support.mjs";

const axe = await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

let demo;
let model;
before(async () => {
  [demo, model] = await Promise.all([start(), chatModel()]);
});
after(() => demo?.stop());

const open = (context, options) => visit(context, demo.browser, demo.isolated, options);

/** What axe-core finds wrong with the page as it is. */
async function check({ page }, state, begin = () => {}) {
  // By the debugger, which the page's policy does not bind.
  await page.evaluate(axe);
  await page.evaluate(begin);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
  const found = violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ target, html }) => `${target} ${html}`).join(" | ")}`,
  );
  assert.deepEqual(found, [], state);
  assert.ok(passes.length > 15, `${passes.length} rules were checked`);
}

async function importOne(page) {
  const content =
    "# Title\n\nSome *text*, `code` and [a link](https://a.example/).\n\n```js\nconst wide = 'a line that is so long that it must scroll by itself, in its box, and not with the page';\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- [x] done\n\nمرحبا **بالعالم**";
  const nodes = [
    { parent: null, role: "user", content: "اكتب قصة قصيرة" },
    { parent: 0, role: "assistant", content },
  ];
  const one = { title: "One", system: "", nodes, leaf: 1, changed: 1 };
  await page.page.locator(".history summary").click();
  const chooser = page.page.waitForEvent("filechooser");
  await page.page.getByRole("button", { name: "Import…" }).click();
  const text = JSON.stringify({ ternlight: "conversations", version: 1, conversations: [one] });
  await (await chooser).setFiles(file("one.json", Buffer.from(text)));
  await page.page.getByRole("button", { name: "One", exact: true }).click();
  await page.page.getByText("Conversation opened").waitFor();
}

test("axe-core finds nothing in any state, light and dark", { timeout: 400_000 }, async (context) => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(context, { colorScheme });
    await check(page, "loading");
    await page.reach("ready");
    await page.set({ "Max tokens": 8 });
    await page.write();
    await check(page, "written");
    await page.set({ "Max tokens": 400 });
    await check(page, "generating", async () => {
      const { dataset } = document.documentElement;
      document.getElementById("composer").requestSubmit();
      while (dataset.state !== "generating") await new Promise((resolve) => setTimeout(resolve));
      while (!document.querySelector("#text .written")?.textContent) await new Promise(requestAnimationFrame);
      if (dataset.state !== "generating") throw new Error("it has ended");
    });
    await page.page.waitForFunction(() => document.documentElement.dataset.state === "ready");
    await page.page.getByText("Several at once").click();
    await page.set({ "Max tokens": 8 });
    await page.page.getByRole("button", { name: "Write all" }).click();
    await page.page.getByText(/tokens\/s together$/).waitFor();
    await check(page, "several at once");
    await page.page.getByText("Several at once").click();
    await page.page.getByRole("button", { name: "Change model" }).click();
    await page.page.getByText("Public models: which fit here?").click();
    await page.page
      .getByText(/to download · takes/)
      .first()
      .waitFor();
    await check(page, "chooser and catalogue");
    await page.page.getByRole("button", { name: "Change model" }).click();
    await page.page.getByRole("button", { name: "Storage" }).click();
    await page.page.getByLabel("Storage", { exact: true }).getByText("ternlight-demo").waitFor();
    await check(page, "storage");
    await page.page.getByRole("button", { name: "Storage" }).click();
    await page.choose(model);
    await importOne(page);
    await check(page, "chat");
    await page.page.getByRole("article").first().getByRole("button", { name: "Edit" }).click();
    await page.page.getByText("System prompt").first().click();
    await check(page, "edit");
    for (const mode of ["JSON", "Tools"]) {
      await page.page.getByLabel(mode, { exact: true }).check();
      await page.page.getByText(mode === "JSON" ? "JSON schema" : "Tool definitions").waitFor();
      await check(page, mode);
      await page.set({ "Max tokens": 120 });
      if (mode === "Tools") {
        // Few values: a text that a model of random weights begins may have no end.
        const parameters = {
          type: "object",
          properties: { city: { enum: ["Rome"] } },
          required: ["city"],
          additionalProperties: false,
        };
        const tools = [{ type: "function", function: { name: "weather", parameters } }];
        await page.page.getByLabel("Tool definitions").fill(JSON.stringify(tools));
        await page.page.getByLabel("Calls").selectOption("required");
        await page.set({ Seed: 2 });
      }
      await page.prompt.fill("Is it warm in Rome?");
      await page.write();
      await page.output
        .locator(mode === "JSON" ? "pre.result" : ".calls textarea")
        .first()
        .waitFor();
      await check(page, `${mode}, answered`);
    }
    await page.page.evaluate(() => (document.documentElement.dir = "rtl"));
    await check(page, "from right to left");
    await page.choose(file("notes.txt", Buffer.from("no model")));
    await page.reach("failed");
    await check(page, "failed");
  }
  const linked = await visit(context, demo.browser, `${demo.isolated}#model=hf:owner/repo`);
  await linked.page.getByText("This link asks").waitFor();
  await check(linked, "link");
});

test("the first paint comes soon, and what comes later moves nothing", async (context) => {
  const before = () => {
    globalThis.shift = 0;
    const observed = (list) => {
      for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) globalThis.shift += value;
    };
    new PerformanceObserver(observed).observe({ type: "layout-shift", buffered: true });
  };
  const visits = [];
  // Lighthouse calls 1.8 s and 0.1 good. Machines of tests are shared: the best of three visits counts.
  while (visits.length < 3 && !visits.some(({ paint, interactive }) => Math.max(paint, interactive) < 1800)) {
    const page = await open(context, { before });
    await page.reach("ready");
    await page.page.waitForTimeout(500);
    const found = await page.page.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
      interactive: performance.getEntriesByType("navigation")[0].domInteractive,
      shift: globalThis.shift,
    }));
    context.diagnostic(`first paint after ${found.paint.toFixed(0)} ms, layout shift ${found.shift.toFixed(4)}`);
    assert.ok(found.shift < 0.02, String(found.shift));
    visits.push(found);
  }
  const { paint, interactive } = visits.at(-1);
  assert.ok(paint < 1800 && interactive < 1800, `${paint} ms`);
});

test("a chat fits a narrow screen, and one at 200 % zoom", async (context) => {
  for (const [name, size] of [
    ["narrow", { width: 360, height: 740 }],
    // What 1280 × 800 becomes at 200 %.
    ["zoom", { width: 640, height: 400, deviceScaleFactor: 2 }],
  ]) {
    const page = await open(context, size);
    await page.reach("ready");
    await page.choose(model);
    await importOne(page);
    await page.page.getByRole("button", { name: "Change model" }).click();
    await page.page.getByRole("button", { name: "Storage" }).click();
    const wide = await page.page.evaluate(() => document.documentElement.scrollWidth);
    assert.equal(wide, size.width, name);
    const log = await page.output.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth);
    assert.equal(log, 0, `${name}: code scrolls in its own box`);
    await picture(page, name);
  }
});

test("text from right to left stands on the right, code does not, and neither do the controls", async (context) => {
  const page = await open(context);
  await page.reach("ready");
  await page.choose(model);
  await importOne(page);
  const direction = (locator) => locator.evaluate((element) => getComputedStyle(element).direction);
  assert.equal(await direction(page.output.getByText("اكتب قصة قصيرة")), "rtl");
  assert.equal(await direction(page.output.locator("p").filter({ hasText: "مرحبا" })), "rtl");
  assert.equal(await direction(page.output.locator("p").filter({ hasText: "Some" })), "ltr");
  assert.equal(await direction(page.output.locator("pre")), "ltr");
  await page.prompt.fill("مرحبا");
  assert.equal(await direction(page.prompt), "rtl");
  assert.equal(await direction(page.generate), "ltr");
  await picture(page, "rtl");
});

test("screen readers hear an answer as it is written, sentence by sentence", async (context) => {
  const before = () => {
    globalThis.heard = [];
    const live = (node) => node.parentElement?.closest("[aria-live=polite]")?.id;
    const added = (changes) => {
      for (const { addedNodes } of changes)
        for (const node of addedNodes) if (live(node) === "spoken") globalThis.heard.push(node.textContent);
    };
    new MutationObserver(added).observe(document, { childList: true, subtree: true });
  };
  const page = await open(context, { before });
  await page.reach("ready");
  await page.set({ "Max tokens": 80, Seed: 1, Temperature: 0 });
  for (const files of [null, model]) {
    if (files) await page.choose(files);
    if (files) await page.set({ "Max tokens": 80, Seed: 1, Temperature: 0 });
    await page.prompt.fill("Once upon a time there was a king");
    await page.write();
    const written = files ? page.output.locator(".assistant .body") : page.output.locator(".written");
    const heard = await page.page.evaluate(() => globalThis.heard.splice(0));
    const words = (text) => text.replaceAll(/\s+/g, " ").trim();
    assert.equal(words(heard.join(" ")), words(await written.innerText()));
    assert.ok(files || heard.length > 1, heard.join(" | "));
    assert.equal(await page.output.getAttribute("aria-live"), "off", "it is not read out twice");
  }
});

test("what a reader has asked of every page is kept to: less motion, colours of the system", async (context) => {
  const page = await open(context, { reducedMotion: "reduce", forcedColors: "active" });
  await page.reach("ready");
  const styles = await page.page.evaluate(() => {
    const probe = document.createElement("i");
    probe.className = "probe";
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(".probe { transition: opacity 3s }");
    document.adoptedStyleSheets.unshift(sheet);
    document.body.append(probe);
    const of = (element) => getComputedStyle(element);
    const [on, off] = ["generate", "stop"].map((id) => of(document.getElementById(id)));
    return { moves: of(probe).transitionDuration, differ: on.color !== off.color, edge: on.borderTopWidth };
  });
  assert.deepEqual(styles, { moves: "0s", differ: true, edge: "2px" });
  await check(page, "forced colours");
  await picture(page, "forced-colours");
});

test("every error has words, and says what to do", async () => {
  const { explain } = await import("../../../www/problems.js");
  const codes = await readFile(new URL("../../src/types/error_codes.ts", import.meta.url), "utf8");
  const known = [...codes.matchAll(/^ {2}([A-Z]\w+): \{$/gm)].map(([, code]) => code);
  assert.ok(known.length > 35);
  const wordless = known.filter((code) => explain({ code, message: "" }).title === "Something went wrong.");
  // What a command line and a converter say alone.
  assert.deepEqual(wordless, ["Exists", "NotStrict"]);
});
