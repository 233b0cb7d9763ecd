/** Links of the documents: files that are there, headings that are there. Addresses of other hosts are not asked for. */
import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { slug } from "../../../docs/scripts/slug.mjs";
import { anchors, documents, links, others, read, root } from "./support.mjs";

test("every link leads somewhere", () => {
  const broken = [];
  let checked = 0;
  for (const document of [...documents, ...others]) {
    for (const target of links(document)) {
      if (/^(https?|mailto):/.test(target)) continue;
      checked++;
      const [file, anchor] = target.split("#");
      const found = file ? path.posix.join(path.posix.dirname(document), decodeURIComponent(file)) : document;
      if (!existsSync(path.join(root, found))) broken.push(`${document}: ${target}`);
      else if (anchor && !anchors(found).includes(anchor)) broken.push(`${document}: ${target} (no such heading)`);
    }
  }
  assert.deepEqual(broken, []);
  assert.ok(checked > 50, `${checked} links`);
});

test("every page of docs is linked from the README or from a page", () => {
  const linked = new Set();
  for (const document of documents) {
    for (const target of links(document))
      linked.add(path.posix.join(path.posix.dirname(document), target.split("#")[0]));
  }
  assert.deepEqual(
    documents.filter((document) => document !== "README.md" && !linked.has(document)),
    [],
  );
});

test("the README is short, and so is its picture", () => {
  const { size } = statSync(path.join(root, "docs/images/demo.png"));
  assert.ok(size < 150_000, `${size} bytes`);
  const words = read("README.md").split(/\s+/).filter(Boolean).length;
  assert.ok(words <= 1200, `${words} words`);
});

test("the results are short files, and their README leads to each", () => {
  const folder = "benches/results/";
  const files = others.filter((name) => name.startsWith(folder));
  assert.ok(files.length > 10, `${files.length} files`);
  const led = links(`${folder}README.md`).map((target) => path.posix.join(folder, target.split("#")[0]));
  for (const name of files) {
    const { size } = statSync(path.join(root, name));
    assert.ok(size < 26_000, `${name}: ${size} bytes; a topic of its own belongs in a file of its own`);
    if (name !== `${folder}README.md`) assert.ok(led.includes(name), `${name} is not in the index of its README`);
  }
});

test("what a source cites of the results is there", () => {
  const sources = globSync(["src/**/*.rs", "pkg/{src,scripts,test}/**/*.{ts,tsx,mjs}", "benches/*.{mjs,rs}"], {
    cwd: root,
    exclude: ["**/node_modules"],
  });
  let cited = 0;
  for (const source of sources) {
    // A comment as one line.
    const text = readFileSync(path.join(root, source), "utf8").replace(/\n[ \t]*(?:\/\/[/!]?|\*) ?/g, " ");
    for (const [, file, heading] of text.matchAll(/\bresults\/(\w+\.md)(?:, "([^"]+)")?/g)) {
      cited++;
      const document = `benches/results/${file}`;
      assert.ok(existsSync(path.join(root, document)), `${source}: ${document}`);
      if (heading) assert.ok(anchors(document).includes(slug(heading)), `${source}: ${document}, "${heading}"`);
    }
  }
  assert.ok(cited > 12, `${cited} citations`);
});
