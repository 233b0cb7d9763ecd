/** What a load reports of its download. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Meter } from "../../src/host/meter.ts";

test("a burst before a pause is reported, in few reports", async () => {
  const reports: number[] = [];
  const meter = new Meter(1000, ({ loaded }) => reports.push(loaded));
  for (let i = 0; i < 50; i++) meter.add(10);
  assert.ok(reports.length <= 2, `${reports}`);
  await setTimeout(200);
  assert.equal(reports.at(-1), 500);
  const before = reports.length;
  await setTimeout(200);
  assert.equal(reports.length, before, "nothing came");
  meter.add(10);
  meter.add(10);
  meter.stop();
  await setTimeout(200);
  assert.ok(reports.length <= before + 1, "nothing is reported behind the end");
  meter.add(480);
  assert.equal(reports.at(-1), 1000);
});
