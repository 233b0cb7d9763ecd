/** Markdown in a page: what a reader sees, and that nothing a model writes runs, loads or leads anywhere by itself. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { start } from "../page/support.mjs";

let demo;
let page;
const requests = [];
before(async () => {
  demo = await start();
  page = await demo.browser.newPage();
  await page.goto(`${demo.isolated}icon.svg`);
  await page.goto(`${demo.isolated}bench.html`);
  page.on("request", (request) => requests.push(request.url()));
  await page.evaluate(async () => {
    globalThis.markdown = await import("/ternlight/dist/markdown.js");
  });
});
after(() => demo?.stop());

/** The elements of a text, as HTML. */
const html = (text) =>
  page.evaluate((text) => {
    const into = document.createElement("div");
    into.append(globalThis.markdown.renderMarkdown(text));
    return into.innerHTML;
  }, text);

test("a text becomes elements with a direction of their own", async () => {
  assert.equal(
    await html("# T\n\nA *b*\n\n1. c\n2. d\n\n```js\n<e>\n```"),
    '<h1 dir="auto">T</h1><p dir="auto">A <em>b</em></p><ol dir="auto"><li>c</li><li>d</li></ol>' +
      '<pre dir="ltr" tabindex="0"><code data-language="js">&lt;e&gt;</code></pre>',
  );
  const table = await html("|a|b|\n|-|-:|\n|1|2|");
  assert.match(table, /^<table><thead><tr><th dir="auto" scope="col">a<\/th>/);
  assert.match(table, /<td dir="auto" style="text-align: right;">2<\/td>/);
  assert.match(await html("- [x] done"), /<span role="img" aria-label="done">☑<\/span> done/);
});

test("HTML of a model is text", async () => {
  const hostile = [
    '<script>globalThis.ran = "script"</script>',
    '<img src=x onerror="globalThis.ran = 1">',
    '<svg onload="globalThis.ran = 1"></svg>',
    "[a](javascript:globalThis.ran=1)",
    "[a](<java\tscript:globalThis.ran=1>)",
    "![a](data:image/svg+xml,<svg/onload=globalThis.ran=1>)",
    '<iframe srcdoc="<script>parent.ran = 1</script>"></iframe>',
    "<style>* { display: none }</style>",
    '<base href="https://evil.example/"><form action="//evil.example"><input name=a></form>',
    '```"><img src=x onerror=globalThis.ran=1>\ncode\n```',
    "| <img src=x onerror=globalThis.ran=1> | b |\n|-|-|\n| [x](javascript:globalThis.ran=1) | ` </code><script>globalThis.ran=1</script>` |",
    "<!-- --><a href=javascript:globalThis.ran=1 id=body name=body>click</a>",
    '[x](https://a.example/"onmouseover=globalThis.ran=1)',
  ];
  const found = await page.evaluate(async (hostile) => {
    const into = document.createElement("main");
    document.body.append(into);
    const stream = new globalThis.markdown.MarkdownStream(into);
    const names = new Set();
    const attributes = new Set();
    const missing = [];
    for (const text of hostile) {
      for (let end = 1; end <= text.length; end++) stream.update(text.slice(0, end));
      for (const element of into.querySelectorAll("*")) {
        names.add(element.localName);
        for (const { name } of element.attributes) attributes.add(name);
        element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      }
      if (text.includes("<script") && !into.textContent.includes("<script")) missing.push(text);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
    into.remove();
    return { names: [...names].sort(), attributes: [...attributes].sort(), ran: globalThis.ran ?? null, missing };
  }, hostile);
  assert.equal(found.ran, null);
  assert.deepEqual(found.missing, [], "HTML is shown as it was written");
  const allowed = ["a", "code", "em", "p", "pre", "small", "table", "tbody", "td", "th", "thead", "tr"];
  assert.deepEqual(
    found.names.filter((name) => !allowed.includes(name)),
    [],
  );
  assert.ok(
    !found.attributes.some((name) => name === "href" || name === "src" || name.startsWith("on")),
    found.attributes.join(),
  );
  assert.deepEqual(
    requests.filter((url) => !url.startsWith(demo.isolated)),
    [],
  );
});

test("a link is inert until it is clicked, says where it leads, and opens without a way back", async () => {
  const opened = await page.evaluate(() => {
    const into = document.createElement("p");
    document.body.append(into);
    into.append(
      globalThis.markdown.renderMarkdown("[bank](https://evil.example/x) https://plain.example/y [a](mailto:b@c.d)"),
    );
    const calls = [];
    globalThis.open = (...given) => calls.push(given);
    const links = [...into.querySelectorAll("a")];
    const before = calls.length;
    links[0].click();
    links[1].dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    const shown = links.map((link) => [
      link.textContent,
      link.getAttribute("href"),
      link.getAttribute("role"),
      link.tabIndex,
    ]);
    into.remove();
    return { before, calls, shown };
  });
  assert.equal(opened.before, 0);
  const flags = ["_blank", "noopener,noreferrer"];
  assert.deepEqual(opened.calls, [
    ["https://evil.example/x", ...flags],
    ["https://plain.example/y", ...flags],
  ]);
  assert.deepEqual(opened.shown, [
    ["bank (evil.example)", null, "link", 0],
    ["https://plain.example/y", null, "link", 0],
    ["a (b@c.d)", null, "link", 0],
  ]);
});

test("a text that grows ends as the same elements, and leaves alone what is before its last block", async () => {
  const found = await page.evaluate(() => {
    const { MarkdownStream, renderMarkdown } = globalThis.markdown;
    const whole = (text) => {
      const into = document.createElement("div");
      into.append(renderMarkdown(text));
      return into.innerHTML;
    };
    const parts = [
      "a",
      "# b",
      "- c",
      "  - d",
      "1. e",
      "> f",
      "```",
      "| g | h |",
      "|-|-|",
      "---",
      "",
      "*i*",
      "    j",
      "#k",
      "\r\nl",
      "--x",
    ];
    let seed = 1;
    const random = (below) => {
      seed = (seed * 48271) % 2147483647;
      return seed % below;
    };
    const wrong = [];
    for (let round = 0; round < 300; round++) {
      const text = Array.from({ length: 8 }, () => parts[random(parts.length)]).join("\n");
      const into = document.createElement("div");
      const stream = new MarkdownStream(into);
      for (let end = 0; end < text.length; end += 1 + random(4)) {
        stream.update(text.slice(0, end));
        if (into.innerHTML !== whole(text.slice(0, end))) wrong.push(text.slice(0, end));
      }
      stream.update(text);
      if (into.innerHTML !== whole(text)) wrong.push(text);
    }
    const into = document.createElement("div");
    const stream = new MarkdownStream(into);
    stream.update("one\n\ntwo\n\nthree\nfour\nfive");
    const first = into.firstChild;
    stream.update("one\n\ntwo\n\nthree\nfour\nfive\n\nsix");
    const same = first === into.firstChild;
    stream.update("another");
    return { wrong: wrong.slice(0, 3), same, last: into.textContent };
  });
  assert.deepEqual(found, { wrong: [], same: true, last: "another" });
});

test("deep and long texts are shown without a deep tree", async () => {
  const deepest = await page.evaluate(() => {
    const depth = (element) => 1 + Math.max(0, ...[...element.children].map(depth));
    const texts = [
      "> ".repeat(5000),
      "- ".repeat(5000),
      "*a **b ".repeat(3000) + "c** d*".repeat(3000),
      "[".repeat(5000),
    ];
    return texts.map((text) => {
      const into = document.createElement("div");
      into.append(globalThis.markdown.renderMarkdown(text));
      return depth(into);
    });
  });
  for (const depth of deepest) assert.ok(depth < 80, String(deepest));
});
