/** Scattered reads: what comes of them, and how many there are at once. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { join, readAll, type Span } from "../../src/host/spans.ts";
import type { ModelFiles } from "../../src/source/files.ts";

const FAR = 1 << 20;

/** Two files whose bytes tell where they are from; keeps count of reads. */
function twoFiles(fails?: (file: number, offset: number) => boolean) {
  const count = { all: 0, now: 0, most: 0 };
  const weights = [0, 1].map((file) => ({
    async read(offset: number, length: number) {
      count.all++;
      count.most = Math.max(count.most, ++count.now);
      // Those that are asked for later come sooner.
      await wait(5 + ((100 - count.all) % 7));
      count.now--;
      if (fails?.(file, offset)) throw new Error(`nothing at ${offset}`);
      return Uint8Array.from({ length }, (_, i) => (offset + i) * 31 + file);
    },
  }));
  return { files: { weights } as unknown as ModelFiles, count };
}

const { signal } = new AbortController();

test("every span gets its bytes, and a server no more than a few requests at once", async () => {
  const spans: Span[] = Array.from({ length: 40 }, (_, i) => ({
    file: i % 2,
    offset: ((i * 7) % 20) * FAR + (i % 3),
    length: 10 + i,
  }));
  // A neighbour, which comes with the one before.
  spans.push({ file: 0, offset: spans[0]!.offset + 100, length: 50 });
  const { files, count } = twoFiles();
  const read = await readAll(spans, files, signal);
  for (const [i, { file, offset, length }] of spans.entries()) {
    assert.deepEqual(
      read[i],
      Uint8Array.from({ length }, (_, k) => (offset + k) * 31 + file),
      `span ${i}`,
    );
  }
  assert.equal(count.all, 20, "spans that overlap come at one go");
  assert.ok(count.most > 1 && count.most <= 6, `${count.most} at once`);
  assert.deepEqual(await readAll([], files, signal), []);
});

test("after one that fails no more are begun", async () => {
  const spans: Span[] = Array.from({ length: 40 }, (_, i) => ({ file: 0, offset: i * FAR, length: 10 }));
  const { files, count } = twoFiles((_, offset) => offset === 3 * FAR);
  await assert.rejects(readAll(spans, files, signal), /nothing at 3145728/);
  await wait(50);
  assert.ok(count.all <= 15, `${count.all} of 40`);
  assert.equal(count.now, 0);
});

test("neighbours are joined in the order in which they come", () => {
  const span = (offset: number, length: number, file = 0): Span => ({ file, offset, length });
  assert.deepEqual(join([span(0, 10), span(10, 5), span(100, 1), span(0, 4, 1)]), [span(0, 101), span(0, 4, 1)]);
  const turned = join([span(FAR, 10), span(0, 10), span(10, 5), span(FAR + 10, 5)]);
  assert.deepEqual(turned, [span(FAR, 10), span(0, 15), span(FAR + 10, 5)], "what lies before is read by itself");
});
