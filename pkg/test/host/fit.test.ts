/** Which settings are suggested where a model does not fit: what costs least goes first. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fit } from "../../src/host/fit.ts";
import type { EngineSettings } from "../../src/rpc/protocol.ts";

const BITS: Record<string, number> = { f32: 32, f16: 16, q8: 8, q4: 4 };

/** A model whose cache takes 4 bytes a position as f32, 4 contexts of 4096 where nothing is said, and whose scratch follows the chunk. */
function needs({ kvCacheType = "f32", contextLength = 4096, kvCacheTokens, prefillChunk = 256 }: EngineSettings) {
  const kv = ((kvCacheTokens ?? 4 * contextLength) * BITS[kvCacheType]!) / 8;
  const [weights, scratch] = [100, 100 * prefillChunk];
  return { weights, kv, states: 0, scratch, total: weights + kv + scratch };
}

const suggested = (available: number, settings: EngineSettings = {}) =>
  fit({
    settings,
    needed: needs(settings),
    room: { available, reason: `there are ${available}` },
    trainedContext: () => 4096,
    needs,
  });

test("bits of the cache go first, then conversations, chunks, the context, and further bits last", () => {
  const all = needs({}).total;
  assert.equal(suggested(all).ok, true);
  const one = { kvCacheType: "f16", kvCacheTokens: 4096 };
  for (const [settings, expected] of [
    [{ kvCacheType: "f16" }, { kvCacheType: "f16" }],
    [one, one],
    [
      { ...one, prefillChunk: 128 },
      { ...one, prefillChunk: 128 },
    ],
    [
      { ...one, prefillChunk: 32 },
      { ...one, prefillChunk: 32 },
    ],
  ] as [EngineSettings, object][]) {
    const { ok, suggestion } = suggested(needs(settings).total);
    assert.deepEqual([ok, suggestion], [false, expected]);
  }
  const short = { kvCacheType: "f16", kvCacheTokens: 256, contextLength: 256 } as const;
  for (const settings of [
    { ...short, prefillChunk: 64 },
    { ...short, prefillChunk: 32 },
    { ...short, prefillChunk: 32, kvCacheType: "q8" },
    { ...short, prefillChunk: 32, kvCacheType: "q4" },
  ] as EngineSettings[])
    assert.deepEqual(suggested(needs(settings).total).suggestion, settings);
  const nothing = suggested(needs({ ...short, prefillChunk: 32, kvCacheType: "q4" }).total - 1);
  assert.equal(nothing.suggestion, undefined);
  assert.match(nothing.reason!, /too few even for a context of 256 positions$/);
});

test("the context is as long as there is room for", () => {
  // A cache that was settled small does not grow, and neither does a chunk.
  const settings = { kvCacheTokens: 512, prefillChunk: 32 } as const;
  const { suggestion } = suggested(needs({ ...settings, kvCacheType: "f16" }).total, settings);
  assert.deepEqual(suggestion, { kvCacheType: "f16" });
  const long = (context: number) => needs({ kvCacheType: "f16", contextLength: context }).total;
  const { suggestion: found } = suggested(long(1024) + 16, { prefillChunk: 256, contextLength: 65536 });
  assert.deepEqual(found, { kvCacheType: "f16", contextLength: 1024 });
});

test("a cache that was asked for with few bits does not get more of them", () => {
  const settings = { kvCacheType: "q8", contextLength: 4096 } as const;
  const one = suggested(needs({ ...settings, kvCacheTokens: 4096 }).total, settings);
  assert.deepEqual(one.suggestion, { kvCacheTokens: 4096 });
  const short = { kvCacheTokens: 256, contextLength: 256, prefillChunk: 32 };
  const least = needs({ ...short, kvCacheType: "q4" }).total;
  assert.deepEqual(suggested(least, settings).suggestion, { ...short, kvCacheType: "q4" });
  assert.equal(suggested(least - 1, { ...settings, kvCacheType: "q4" }).suggestion, undefined);
});
