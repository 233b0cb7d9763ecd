/** What stands in the timeline of a model's owner. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Timeline } from "../../src/host/timeline.ts";
import type { TimeSpan } from "../../src/rpc/user_timing.ts";

test("a batch of the warm-up that ends in a request's first step is nobody's, and makes no span longer", async () => {
  const spans: TimeSpan[] = [];
  const timeline = new Timeline((some) => spans.push(...some));
  const known = (request: number) => request === 7;
  timeline.begin();
  timeline.end(Uint32Array.of(3, 0, 24), [], known);
  const between = performance.timeOrigin + performance.now();
  timeline.begin();
  timeline.end(new Uint32Array(), [], known);
  timeline.begin();
  timeline.end(Uint32Array.of(7, 0, 4), [{ type: "prompt", request: 7 } as never], known);
  timeline.begin();
  timeline.end(Uint32Array.of(7, 4, 1), [], known);
  timeline.flush();
  assert.deepEqual(
    spans.map(({ track, name }) => [track, name]),
    [
      ["request 7", "prefill 4"],
      ["request 7", "decode 1"],
    ],
  );
  assert.ok(spans[0]!.start >= between);
});
