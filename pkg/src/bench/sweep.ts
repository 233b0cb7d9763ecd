/** Reports for several numbers of conversations and lengths of their past, and where their curves bend. */

import type { Outside } from "../api/unstable.ts";
import { EngineError } from "../types/errors.ts";
import { type BenchTask, checkBench, type Environment, reportAll, withDefaults } from "./bench.ts";
import { knee, line } from "./knee.ts";
import type { BenchReport, SweepReport } from "./report.ts";

export interface Sweep {
  batch: readonly number[];
  ctx: readonly number[];
}

/** Measures each pair of both lists. Values are sorted; those that stand there twice are measured once. */
export async function sweep(
  outside: Outside,
  environment: Environment,
  task: BenchTask,
  { batch, ctx }: Sweep,
): Promise<SweepReport> {
  const rising = (values: readonly number[]) => [...new Set(values)].sort((a, b) => a - b);
  const axes = { batch: rising(batch), ctx: rising(ctx) };
  for (const one of axes.batch) for (const past of axes.ctx) checkBench({ ...task.options, batch: one, ctx: past });
  for (const option of ["trace", "seconds"] as const) {
    if (!task.options[option]) continue;
    throw new EngineError("InvalidArgument", `bench: ${option} takes one batch and one past, not several`, { option });
  }
  const base = withDefaults(task.options);
  const points = axes.ctx.flatMap((ctx) => axes.batch.map((batch) => ({ ...base, batch, ctx })));
  const reports = await reportAll(outside, environment, task, points);
  return { date: reports[0]!.date, sweep: axes, reports, ...knees(axes, reports) };
}

/** @param reports one for each pair of both lists, in any order */
export function knees(
  { batch, ctx }: Sweep,
  reports: readonly BenchReport[],
): Pick<SweepReport, "batchKnees" | "ctxKnees"> {
  const at = (one: number, past: number) =>
    reports.find(({ settings }) => settings.batch === one && settings.ctx === past)!;
  const batchKnees = ctx.map((past) => {
    const speeds = batch.map((one) => at(one, past).decode.tokensPerSecond.median);
    return { ctx: past, knee: batch[knee(batch, speeds, "up") ?? -1] ?? null };
  });
  const ctxKnees = batch.map((one) => {
    const times = ctx.map((past) => at(one, past).decode.stepMs.p50);
    const { base, slope } = line(ctx, times);
    return {
      batch: one,
      knee: ctx[knee(ctx, times, "down") ?? -1] ?? null,
      baseMs: base,
      msPer1000: 1000 * slope,
      doublesAt: slope > 0 && base > 0 ? base / slope : null,
    };
  });
  return { batchKnees: batch.length > 1 ? batchKnees : [], ctxKnees: ctx.length > 1 ? ctxKnees : [] };
}
