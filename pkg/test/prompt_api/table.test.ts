/** The table of the specification's algorithms in the guide names tests that there are. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const read = (name: string) => readFile(new URL(name, import.meta.url), "utf8");

test("every algorithm has its tests, and every test of the table is there", async () => {
  const guide = await read("../../../docs/guide/prompt-api.md");
  const rows = [...guide.matchAll(/^\| (?!Algorithm)([^|]+) \| [^|]+ \| (.+) \|$/gm)];
  const tests = [...(await read("prompt_api.test.ts")).matchAll(/^test\("([^"]+)"/gm)].map(([, name]) => name!);
  assert.ok(rows.length > 20 && tests.length > 20);
  for (const [, algorithm, cell] of rows) {
    const named = [...cell!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);
    assert.ok(named.length > 0, `${algorithm} has no test`);
    assert.deepEqual(
      named.filter((name) => !tests.includes(name)),
      [],
      algorithm,
    );
  }
  assert.equal(new Set(rows.map(([, algorithm]) => algorithm)).size, rows.length);
});
