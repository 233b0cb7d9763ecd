/** Memory that is taken from the system at the load, counted by Linux. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Model } from "ternlight";
import { CONTINUATION, demo, GREEDY, ONCE } from "./support/model.ts";

const elsewhere = { skip: process.platform === "linux" ? false : "/proc is Linux's" };

/** Bytes of a WebAssembly memory of this size, and how many of them the system has given out. */
function resident(bytes: number): { size: number; rss: number } {
  const text = readFileSync("/proc/self/smaps", "utf8");
  const areas = [...text.matchAll(/^[0-9a-f]+-[0-9a-f]+ rw.*\nSize:\s+(\d+) kB\n(?:.*\n)*?Rss:\s+(\d+) kB/gm)];
  const own = areas.map(([, size, rss]) => ({ size: 1024 * Number(size), rss: 1024 * Number(rss) }));
  const found = own.filter(({ size }) => size === bytes);
  assert.equal(found.length, 1, `${bytes}: ${own.map(({ size }) => size).join(" ")}`);
  return found[0]!;
}

/** Page faults of the process that needed no disk. */
const minorFaults = () =>
  Number(
    readFileSync("/proc/self/stat", "utf8")
      .replace(/^.*\) /s, "")
      .split(" ")[7],
  );

const TOKENS = 200;
/** Faults a token of some answers, each in pages of the cache that no other has used. The runtime's own heap has some too, now and then. */
async function faults(model: Model, rounds: number): Promise<number[]> {
  const found: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const prompt = Array.from({ length: TOKENS / 2 }, (_, i) => (300 + 131 * round + 7 * i) % model.info.vocab);
    const before = minorFaults();
    await model.generate(prompt, { ...GREEDY, ignoreEos: true, maxTokens: TOKENS / 2 }).finished;
    found.push((minorFaults() - before) / TOKENS);
  }
  return found;
}

for (const threads of [1, 2]) {
  test(
    `every page is there after the load, and no token waits for one: ${threads} threads`,
    elsewhere,
    async (context) => {
      const cache = { kvCacheTokens: 8192, kvCacheType: "f32", threads } as const;
      const lazy = await demo(context, cache);
      await lazy.warmup();
      const before = resident(lazy.info.memoryBytes);
      assert.ok(before.rss < 0.75 * before.size, JSON.stringify(before));
      const late = Math.max(...(await faults(lazy, 6)));
      assert.ok(late > 0.5, `${late}`);
      const { rss: grown } = resident(lazy.info.memoryBytes);
      assert.ok(grown > before.rss, `${grown} bytes after tokens, ${before.rss} before`);
      await lazy.close();

      const model = await demo(context, { ...cache, prefault: true });
      const { rss, size } = resident(model.info.memoryBytes);
      assert.equal(rss, size);
      await model.warmup();
      // Beside the model's memory, which is all there, the runtime's heap grows and shrinks: few answers have no faults at all.
      const found = await faults(model, 12);
      context.diagnostic(`page faults a token: ${found.join(", ")}; ${late} without`);
      assert.ok(found.sort((a, b) => a - b)[6]! < late / 3, `${found.join(", ")}; ${late} without`);
      assert.deepEqual(resident(model.info.memoryBytes), { rss, size });
      assert.equal((await model.status()).memoryBytes, size);
      assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
    },
  );
}
