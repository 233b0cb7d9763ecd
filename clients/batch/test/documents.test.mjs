/** What README shows of this package, as it stands there. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runPrograms } from "../../scripts/testing.mjs";
import { broker, missing } from "./support/brokers.mjs";

const folder = fileURLToPath(new URL("../", import.meta.url));
const why = missing("redis");

test("the program of clients/batch/README.md", why ? { skip: why } : {}, async (context) => {
  const shared = await mkdtemp(path.join(tmpdir(), "ternlight-jobs-"));
  const queue = await broker("redis");
  context.after(async () => {
    await queue.end();
    await rm(shared, { recursive: true, force: true });
  });
  await writeFile(path.join(shared, "in.jsonl"), '{"prompt": "Once"}\n{"prompt": "A king"}\n');
  Object.assign(process.env, { QUEUE: queue.url, FOLDER: shared });
  assert.equal(await runPrograms(context, "clients/batch/README.md", "@ternlight/batch", folder), 1);
  const lines = (await readFile(path.join(shared, "out.jsonl"), "utf8")).trimEnd().split("\n");
  assert.deepEqual(
    lines.map((line) => JSON.parse(line).custom_id),
    ["line-1", "line-2"],
  );
});
