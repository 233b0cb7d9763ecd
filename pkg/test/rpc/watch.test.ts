import assert from "node:assert/strict";
import { test } from "node:test";
import { Watch } from "../../src/rpc/watch.ts";

test("who answers late is not taken for one who hangs", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const seconds = (count: number) => {
    for (let i = 0; i < count; i++) context.mock.timers.tick(1000);
  };
  let asked = 0;
  const silences: number[] = [];
  const ask = () => asked++;
  const watch = new Watch(ask, (seconds) => silences.push(seconds), 3);

  watch.on = true;
  seconds(10);
  assert.deepEqual([asked, silences], [0, []], "before the first word its script may still be loading");
  watch.heard();
  for (let round = 0; round < 5; round++) {
    seconds(3);
    watch.heard();
  }
  assert.deepEqual([asked, silences], [15, []]);
  seconds(3);
  watch.on = false;
  seconds(10);
  watch.on = true;
  seconds(3);
  assert.equal(silences.length, 0, "while nothing is awaited nothing is counted");
  seconds(1);
  assert.deepEqual(silences, [3]);
  watch.on = false;

  const patient = new Watch(ask, (seconds) => silences.push(seconds), Number.POSITIVE_INFINITY);
  asked = 0;
  patient.heard();
  patient.on = true;
  seconds(100);
  assert.deepEqual([asked, silences], [0, [3]]);
});
