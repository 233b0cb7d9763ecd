/** The addresses of public models: each loads, where a small file of the same architecture and types lies in its place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect, load } from "ternlight";
import { serve } from "../../../scripts/serve.mjs";
import { hubAddresses, mounts, read, rewritten, standIn } from "./support.mjs";

const documents = ["README.md", "docs/guide/models.md"].map(read);
const addresses = [...new Set(documents.flatMap(hubAddresses))];

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
  const rows = [...read("docs/guide/models.md").matchAll(/^\| .* \| `(https:[^`]*)` \|[^|]*\| (.*) \|$/gm)];
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
  for (const [, address, described] of rows) {
    const found = await inspect(standIn(address));
    const family = described.split(/[ ,]/)[0].toLowerCase();
    assert.ok(found.architecture.toLowerCase().includes(family), `${address}: ${found.architecture}`);
    const [, kind] = Object.entries(kinds).find(([words]) => described.includes(words));
    assert.ok(kind in found.kinds, `${address}: ${JSON.stringify(found.kinds)} has no ${kind}`);
  }
});
