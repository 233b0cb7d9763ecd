/** What Markdown means, block by block and mark by mark, and how long hostile texts take. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Block, linesOf, parseBlocks } from "../../src/markdown/blocks.ts";
import { type Mark, parseInline, safeAddress } from "../../src/markdown/inline.ts";

/** Blocks in short: `h1(Title)`, `ul(li(a) li(b))`. */
function brief(blocks: Block[]): string {
  return blocks
    .map((block) => {
      if (block.kind === "paragraph") return `p(${block.text})`;
      if (block.kind === "heading") return `h${block.level}(${block.text})`;
      if (block.kind === "code") return `code:${block.language}(${block.text})`;
      if (block.kind === "quote") return `quote(${brief(block.blocks)})`;
      if (block.kind === "list") {
        const name = `${block.start === null ? "ul" : `ol${block.start}`}${block.loose ? "*" : ""}`;
        const items = block.items.map(({ checked, blocks }) => `li${checked ?? ""}(${brief(blocks)})`);
        return `${name}(${items.join(" ")})`;
      }
      if (block.kind === "table") {
        return `table(${block.align.join()}: ${[block.head, ...block.rows].map((row) => row.join("|")).join(" / ")})`;
      }
      return "hr";
    })
    .join(" ");
}
const blocks = (text: string) => brief(parseBlocks(linesOf(text)));

/** Marks in short, with tags as HTML writes them. */
const inline = (text: string) =>
  parseInline(text)
    .map((mark: Mark) => {
      if (mark.kind === "text") return mark.text;
      if (mark.kind === "code") return `{${mark.text}}`;
      if (mark.kind === "break") return "<br>";
      if (mark.kind === "close") return `</${mark.tag}>`;
      return mark.tag === "a" ? `<a ${mark.address}>` : `<${mark.tag}>`;
    })
    .join("");

test("blocks", () => {
  for (const [text, expected] of [
    ["a\nb\n\nc", "p(a\nb) p(c)"],
    ["# One\n### Three ##\n#no\n####### no", "h1(One) h3(Three) p(#no\n####### no)"],
    ["a\n---\nb\n* * *", "p(a) hr p(b) hr"],
    ["```js\nif (a)\n  b\n```\nc", "code:js(if (a)\n  b) p(c)"],
    ["~~~\n```\n~~~", "code:(```)"],
    ["````\n```\n````", "code:(```)"],
    ["```\nopen", "code:(open)"],
    ["> a\nb\n> > c\n\nd", "quote(p(a\nb) quote(p(c))) p(d)"],
    ["- a\n- b\n  - c\n\nd", "ul(li(p(a)) li(p(b) ul(li(p(c))))) p(d)"],
    ["3. a\n4. b", "ol3(li(p(a)) li(p(b)))"],
    ["1. a\n  - b\n2. c", "ol1(li(p(a) ul(li(p(b)))) li(p(c)))"],
    ["- a\n\n- b", "ul*(li(p(a)) li(p(b)))"],
    ["- a\n\n  b", "ul*(li(p(a) p(b)))"],
    ["- a\nlazy\n- b", "ul(li(p(a\nlazy)) li(p(b)))"],
    ["- [ ] a\n- [x] b", "ul(lifalse(p(a)) litrue(p(b)))"],
    ["1) a\n\n   ```\n   code\n   ```", "ol1*(li(p(a) code:(code)))"],
    ["In\n1986. It", "p(In\n1986. It)"],
    ["|a|b|\n|:-|-:|\n|1|2 \\| 3|\n|4|", "table(left,right: a|b / 1|2 | 3 / 4|)"],
    ["a | b\n- | -", "table(,: a|b)"],
    ["a | b\n--", "p(a | b\n--)"],
    ["<script>\n\nalert(1)\n</script>", "p(<script>) p(alert(1)\n</script>)"],
    ["a\r\nb\r\n\r\nc", "p(a\nb) p(c)"],
    ["", ""],
  ]) {
    assert.equal(blocks(text!), expected, JSON.stringify(text));
  }
});

test("marks inside a block", () => {
  for (const [text, expected] of [
    ["*a* _b_ **c** __d__ ~~e~~", "<em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <del>e</del>"],
    ["***a***", "<em><strong>a</strong></em>"],
    ["**a *b***", "<strong>a <em>b</em></strong>"],
    ["*a **b***", "<em>a <strong>b</strong></em>"],
    ["**a", "**a"],
    ["a * b * c", "a * b * c"],
    ["snake_case_name 2*3*4", "snake_case_name 2<em>3</em>4"],
    ["*a _b* c_", "<em>a _b</em> c_"],
    ["`a*b*` ``a`b`` `open", "{a*b*} {a`b} `open"],
    ["` a `", "{a}"],
    ["\\*a\\* \\a", "*a* \\a"],
    ["a  \nb\\\nc \nd", "a<br>b<br>c\nd"],
    ["a<br>b<br/>c<b>d</b>", "a<br>b<br>c<b>d</b>"],
    ["[a *b*](https://x.org/)", "<a https://x.org/>a <em>b</em></a>"],
    ['[a](https://x.org/w_(y) "title")', "<a https://x.org/w_(y)>a</a>"],
    ["[a](<https://x.org/b c>)", "<a https://x.org/b%20c>a</a>"],
    ["![cat](https://x.org/cat.png)", "<a https://x.org/cat.png>cat</a>"],
    ["[](https://x.org/)", "<a https://x.org/>https://x.org/</a>"],
    ["**[a](https://x.org/)**", "<strong><a https://x.org/>a</a></strong>"],
    // A link holds no other; the address that is left over is one of its own.
    ["[a [b](https://x.org/)](https://y.org/)", "[a <a https://x.org/>b</a>](<a https://y.org/>https://y.org/</a>)"],
    ["see https://x.org/a?b=1.", "see <a https://x.org/a?b=1>https://x.org/a?b=1</a>."],
    ["<https://x.org> <mailto:a@b.c>", "<a https://x.org/>https://x.org</a> <a mailto:a@b.c>mailto:a@b.c</a>"],
    ["[a](javascript:alert(1))", "[a](javascript:alert(1))"],
    ["[a](/b) [a] (b)", "[a](/b) [a] (b)"],
    ["日本**語**。**「強」**です", "日本<strong>語</strong>。<strong>「強」</strong>です"],
  ]) {
    assert.equal(inline(text!), expected, JSON.stringify(text));
  }
});

test("only addresses of pages and mail are links", () => {
  for (const address of [
    ...["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", "\u0001javascript:alert(1)"],
    ...[
      "data:text/html,<script>alert(1)</script>",
      "vbscript:a",
      "blob:https://x.org/1",
      "file:///etc/passwd",
      "//x.org",
      "x",
    ],
    `https://x.org/${"a".repeat(3000)}`,
  ]) {
    assert.equal(safeAddress(address), null, address.slice(0, 60));
    for (const text of [`[a](${address})`, `[a](<${address}>)`, `<${address}>`]) {
      const opened = parseInline(text).filter((mark) => mark.kind === "open" && mark.tag === "a");
      for (const mark of opened) assert.match((mark as { address: string }).address, /^https:\/\/x\.org\//, text);
    }
  }
});

test("hostile texts take time in proportion to their length, and lose no letter", () => {
  const length = 60_000;
  const start = performance.now();
  for (const part of [
    ...[
      "*",
      "**a ",
      "*a _b ",
      "_",
      "~~",
      "[",
      "]",
      "[](",
      "![",
      "[a](b",
      "](",
      "<",
      "<http://a",
      "`",
      "`a``",
      "\\",
      "http://",
      "http://%",
    ],
    ...[
      "> ",
      "- ",
      "1. ",
      "  - a\n",
      "> a\n",
      "#",
      "# #",
      "|",
      "|-",
      "-|\n",
      "a|b\n-|-\n",
      "```\n",
      "~~~~\n",
      " ",
      " \n",
      "\t",
      "\n",
      "*a*",
    ],
    ...["a  \n", "- - x\n", "-".repeat(99), "(", "[x](((((", "[x](http://a 'b", "\u0000", "\ud800", "hH", "a*"],
  ]) {
    const text = part.repeat(Math.ceil(length / part.length));
    const began = performance.now();
    const parsed = parseBlocks(linesOf(text));
    const seen = JSON.stringify(parsed);
    assert.ok(seen.length < 80 * text.length, `${JSON.stringify(part)}: ${seen.length} characters`);
    const shown = parseInline(text);
    assert.ok(shown.length <= 3 * text.length, `${JSON.stringify(part)}: ${shown.length} marks`);
    const took = performance.now() - began;
    assert.ok(took < 4000, `${JSON.stringify(part)}: ${took.toFixed(0)} ms`);
  }
  assert.ok(performance.now() - start < 60_000);
});
