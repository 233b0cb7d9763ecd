/** What the files of deploy/ say about batches. */

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { collect, openMetrics, submit, work } from "@ternlight/batch";
import { broker, missing } from "../../../clients/batch/test/support/brokers.mjs";
import { answering, IDENTITY, rows } from "../../../clients/batch/test/support/lines.mjs";

const deploy = fileURLToPath(new URL("../../../deploy/", import.meta.url));
const why = missing("redis");

test("every metric that a file names is one that batches have", why ? { skip: why } : {}, async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-jobs-"));
  const queue = await broker("redis");
  const place = { queue: queue.url, folder };
  const job = await submit({ ...place, rows: rows(40), identity: IDENTITY, model: "m" });
  await collect({ ...place, job: job.id, out: null });
  const metrics = await openMetrics(place);
  const worker = await work({ ...place, model: answering({ ms: 500 }) });
  context.after(async () => {
    await worker.close();
    await metrics.close();
    await queue.end();
    await rm(folder, { recursive: true, force: true });
  });
  const text = await metrics.text([{ name: "m", counts: worker.counts }]);
  const known = new Set([...text.matchAll(/^([a-z_]+)(?:\{| )/gm)].map(([, name]) => name));
  let named = 0;
  for (const entry of await readdir(deploy, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath, entry.name);
    for (const [name] of (await readFile(file, "utf8")).matchAll(/\bternlight_batch_[a-z_]+\b/g)) {
      named++;
      assert.ok(known.has(name), `${file}: ${name}`);
    }
  }
  assert.ok(named > 40, String(named));
});
