/** Links of the documents: files that are there, headings that are there. Addresses of other hosts are not asked for. */
import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
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
