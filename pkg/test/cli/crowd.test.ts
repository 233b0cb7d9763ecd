import assert from "node:assert/strict";
import { test } from "node:test";
import { DEMO, done, failure, json } from "./support/ternlight.ts";

const SHORT = ["--clients", "12", "--seconds", "2", "--threads", "1"];

test("loadtest: every answer is what it is alone, and nothing is left behind", async () => {
  const found = await json("loadtest", DEMO, ...SHORT, "--max-sequences", "4", "--kv-cache-tokens", "1024");
  assert.equal(found.clients, 12);
  assert.equal(found.wrong, 0);
  const { whole, brokenOff, refused } = found.answers;
  assert.ok(whole > 0 && whole + brokenOff >= 12 && refused === 0, JSON.stringify(found.answers));
  assert.ok(found.tokensPerSecond > 0);
  assert.ok(found.beside.promptTokens > 500 && found.beside.firstPieceMs > 0);
  for (const { p50, p95, p99, most } of [found.firstPieceMs, found.gapMs, found.beside.gapMs]) {
    assert.ok(p50 <= p95 && p95 <= p99 && p99 <= most && most > 0);
  }
  const { running, waiting, paused, usedTokens, kvCacheTokens } = found.status;
  assert.deepEqual([running, waiting, paused, usedTokens, kvCacheTokens], [0, 0, 0, 0, 1024]);
  const [before, after] = found.memory.wasmBytes;
  assert.ok(after <= 1.05 * before, `${before} bytes became ${after}`);
});

test("loadtest: who is refused asks again", async () => {
  const { stdout } = await done("loadtest", DEMO, ...SHORT, "--max-sequences", "2", "--max-waiting", "1");
  assert.match(stdout, /[1-9]\d* refused/);
  assert.match(stdout, /none: each is what it is alone/);
});

test("flags of the load test belong to it", async () => {
  for (const [flag, ...args] of [
    ["--clients", "bench", DEMO, "--clients", "2"],
    ["--repeat", "loadtest", DEMO, "--repeat", "2"],
    ["--seconds", "loadtest", DEMO, "--seconds", "0"],
  ] as [string, ...string[]][]) {
    const { detail } = await failure(2, ...args);
    assert.equal(detail.option, flag);
  }
});
