/**
 * The addresses of public models: each loads, where a small file of the same architecture and types lies in its place; and the tables
 * say what the catalogue says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect, load } from "ternlight";
import { serve } from "../../../scripts/serve.mjs";
import { models, settingsText } from "../../src/catalogue/models.ts";
import { aloneOfItsKind, hubAddresses, mounts, read, rewritten, standIn } from "./support.mjs";

const documents = ["README.md", "docs/guide/models.md"].map(read);
const addresses = [...new Set(documents.flatMap(hubAddresses))].filter((address) => !aloneOfItsKind(address));

test("public models", async (context) => {
  const server = await serve({ mounts: mounts(documents), headers: {} });
  context.after(() => server.close());
  assert.ok(addresses.length >= 18, `${addresses.length} addresses`);
  const loaded = new Set();
  for (const address of addresses) {
    await context.test(address, async () => {
      const file = standIn(address);
      assert.ok(file, "no file stands for it");
      const source = rewritten(address, server.url);
      // The header is read of each, and each file runs once.
      assert.notEqual((await inspect(source)).tokenizer, null);
      if (loaded.has(file)) return;
      loaded.add(file);
      const model = await load(source, { cache: false, threads: 1 });
      const { tokens } = await model.generate("The", { maxTokens: 4, ignoreEos: true }).finished;
      assert.equal(tokens.length, 4);
      await model.close();
    });
  }
});

test("the table names the architecture and types that are loaded", async () => {
  const rows = [...read("docs/guide/models.md").matchAll(/^\| [^|]* \| `(https:[^`]*)` \|[^|]*\| ([^|]*) \|/gm)];
  assert.ok(rows.length >= 18);
  const kinds = {
    I2_S: "I2_S",
    TQ2_0: "TQ2_0",
    Q1_0: "Q1_0",
    Q2_0: "Q2_0",
    "packed U8": "U8x4",
    masters: "BF16",
    F16: "F16",
  };
  for (const [, address, described] of rows.filter(([, address]) => !aloneOfItsKind(address))) {
    const found = await inspect(standIn(address));
    const family = described.split(/[ ,]/)[0].toLowerCase();
    assert.ok(found.architecture.toLowerCase().includes(family), `${address}: ${found.architecture}`);
    const [, kind] = Object.entries(kinds).find(([words]) => described.includes(words));
    assert.ok(kind in found.kinds, `${address}: ${JSON.stringify(found.kinds)} has no ${kind}`);
  }
});

const addressOf = ({ file }) => {
  const [owner, repository, ...path] = file.replace("hf:", "").split("/");
  return `https://huggingface.co/${owner}/${repository}/resolve/main/${path.join("/")}`;
};

/** Sizes that are known to the byte are shown to the megabyte. */
const gigabytes = ({ bytes, rounded }) => {
  if (bytes === null) return "";
  return rounded ? String(bytes / 1e9) : (bytes / 1e9).toFixed(3);
};

const billions = (parameters) => (parameters === null ? "" : `${parameters / 1e9} B`);
/** In a table a bar ends a cell, in code too. */
const code = (template) => (template === null ? "" : `\`${template.replaceAll("|", "\\|")}\``);

test("the page's table is the catalogue", () => {
  const expected = models.map((model) => {
    const { name, kind, license, context, parameters, template } = model;
    const about = [billions(parameters), license ?? "", context ?? "", code(template), settingsText(model)];
    const cells = [name, `\`${addressOf(model)}\``, gigabytes(model), kind, ...about];
    return `| ${cells.join(" | ")} |`;
  });
  const rows = read("docs/guide/models.md")
    .split("\n")
    .filter((line) => line.includes("`https://huggingface.co/"));
  assert.deepEqual(rows, expected);
});

test("addresses and sizes of the README are the catalogue's", () => {
  const known = new Map(models.map((model) => [addressOf(model), model]));
  const sizes = new Set(models.flatMap(({ bytes }) => (bytes === null ? [] : (bytes / 1e9).toFixed(2))));
  const rows = [...read("README.md").matchAll(/^\| .* \| (.*) \| `load\("(.*)"\)` \|$/gm)];
  assert.ok(rows.length >= 9, `${rows.length} rows`);
  for (const [, size, address] of rows) {
    const model = known.get(address);
    assert.ok(model, address);
    for (const [number] of size.matchAll(/\b\d\.\d\d\b/g)) assert.ok(sizes.has(number), `${address}: ${number}`);
    const own = /^(\d\.\d\d) GB/.exec(size)?.[1];
    if (own) assert.equal(own, (model.bytes / 1e9).toFixed(2), address);
  }
  for (const address of hubAddresses(read("README.md"))) assert.ok(known.has(address), address);
});
