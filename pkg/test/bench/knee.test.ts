import assert from "node:assert/strict";
import { test } from "node:test";
import { knee, line } from "../../src/bench/knee.ts";
import type { BenchReport } from "../../src/bench/report.ts";
import { knees } from "../../src/bench/sweep.ts";

const doubling = [1, 2, 4, 8, 16, 32];

test("the knee of a rise is where it ends", () => {
  // Speed of a machine that shares a fixed cost of 40 ms and takes 10 ms for each: it can do 100 at most.
  const saturating = doubling.map((batch) => (1000 * batch) / (40 + 10 * batch));
  assert.equal(doubling[knee(doubling, saturating, "up")!], 8);
  const limited = doubling.map((batch) => Math.min(batch, 4));
  assert.equal(doubling[knee(doubling, limited, "up")!], 4, "a corner is its own knee");
  assert.equal(knee([1, 4, 8, 16], [23, 34, 40, 36], "up"), 2, "what falls again has its knee at the top");
});

test("what does not bend has no knee, and what does not rise has it at once", () => {
  assert.equal(knee(doubling, doubling, "up"), null);
  assert.equal(
    knee(
      doubling,
      doubling.map((x) => 5 + 3 * x),
      "down",
    ),
    null,
  );
  assert.equal(knee([1, 4, 8], [50, 51, 50], "up"), 0);
  assert.equal(knee([1, 4, 8], [50, 40, 30], "up"), 0);
  assert.equal(knee([1, 4], [10, 40], "up"), null, "two points are a line");
  assert.equal(knee([1, 4, 8], [10, 10.1, 10.2], "down"), null, "flat");
  assert.equal(knee([1], [10], "up"), null);
});

test("the knee of a cost is where its rise begins", () => {
  const ctx = [512, 1024, 2048, 4096, 8192];
  const costs = ctx.map((past) => 20 + 0.001 * past + 0.02 * Math.max(0, past - 4096));
  assert.equal(ctx[knee(ctx, costs, "down")!], 4096);
});

test("a line goes through points of a line", () => {
  const { base, slope } = line([0, 100, 300], [5, 7, 11]);
  assert.ok(Math.abs(base - 5) < 1e-9 && Math.abs(slope - 0.02) < 1e-9);
  assert.deepEqual(line([3], [7]), { base: 7, slope: 0 });
});

test("a sweep names the knee of every curve", () => {
  const axes = { batch: [1, 2, 4, 8], ctx: [0, 1000, 2000] };
  const report = (batch: number, ctx: number) => {
    const ms = 40 + 0.02 * ctx + (batch > 4 ? 10 * batch : 0);
    const speed = { median: (1000 * batch) / ms, least: 0, most: 0, runs: [] };
    return {
      settings: { batch, ctx },
      decode: { tokensPerSecond: speed, stepMs: { p50: ms } },
    } as unknown as BenchReport;
  };
  const reports = axes.ctx.flatMap((ctx) => axes.batch.map((batch) => report(batch, ctx)));
  const { batchKnees, ctxKnees } = knees(axes, reports.reverse());
  assert.deepEqual(
    batchKnees,
    axes.ctx.map((ctx) => ({ ctx, knee: 4 })),
  );
  for (const { knee, baseMs, msPer1000, doublesAt, batch } of ctxKnees) {
    const base = 40 + (batch > 4 ? 10 * batch : 0);
    assert.ok(knee === null && Math.abs(baseMs - base) < 1e-6 && Math.abs(msPer1000 - 20) < 1e-6);
    assert.ok(Math.abs(doublesAt! - base / 0.02) < 1e-3);
  }
  assert.deepEqual(knees({ batch: [1], ctx: axes.ctx }, reports).batchKnees, []);
  assert.deepEqual(knees({ batch: axes.batch, ctx: [0] }, reports).ctxKnees, []);
});
