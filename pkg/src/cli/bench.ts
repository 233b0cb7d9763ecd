import { type BenchOptions, type BenchTask, checkBench, bench as measure } from "../bench/bench.ts";
import { type Budget, type Checked, check, parseBudget } from "../bench/budget.ts";
import { diffAll, parseReport, parseReports } from "../bench/diff.ts";
import { environment } from "../bench/environment.ts";
import { grewBy } from "../bench/over_time.ts";
import type { BenchReport } from "../bench/report.ts";
import { sweep } from "../bench/sweep.ts";
import { spawnEngine, toPath } from "../platform/node.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { modelOf, namedModel } from "./bench_model.ts";
import { checkReport, difference, report, sweepReport } from "./bench_report.ts";
import { readText } from "./file.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

const outside = { spawnEngine, base: null, toPath };
/** A report is worse, memory grew, or a budget is missed. */
const WORSE = 1;

export const bench: Command = {
  name: "bench",
  async run(args, terminal) {
    const axes = { batch: args.sweep("batch"), ctx: args.sweep("ctx") };
    const { maxGrowth, ...options } = args.own<BenchOptions & { maxGrowth?: number }>("bench");
    if (maxGrowth !== undefined && options.seconds === undefined) {
      throw new UsageError("--max-growth needs --seconds", { option: "--max-growth" });
    }
    const load = { ...loadOptions(args), signal: terminal.signal, onProgress: terminal.progress };
    const task = { ...modelOf(args), options, load, onNote: (note: string) => terminal.passing(note) };
    if (Object.values(axes).some((values) => values && values.length > 1)) return swept(args, terminal, task);
    const result = await measure(outside, environment, task);
    if (terminal.json) await terminal.printJson(result);
    else await terminal.print(`${report(result)}\n`);
    if (maxGrowth !== undefined && grewBy(result.overTime!, maxGrowth)) {
      await terminal.note(`ternlight: memory grew by more than ${maxGrowth} %`);
      terminal.status = WORSE;
    }
  },
};

async function swept(args: Args, terminal: Terminal, task: BenchTask): Promise<void> {
  const { batch, ctx } = { ...task.options };
  const [batches, pasts] = [args.sweep("batch") ?? [batch ?? 1], args.sweep("ctx") ?? [ctx ?? 0]];
  for (const flag of ["trace", "seconds"] as const) {
    if (args.has(flag)) throw new UsageError(`--${flag} takes one batch and one past`, { option: `--${flag}` });
  }
  const found = await sweep(outside, environment, task, { batch: batches, ctx: pasts });
  if (terminal.json) await terminal.printJson(found);
  else await terminal.print(`${sweepReport(found)}\n`);
}

export const benchDiff: Command = {
  name: "bench diff",
  async run(args, terminal) {
    const read = async (file: string) => parseReports(file, await readText(file));
    const [a, b] = await Promise.all(args.operands.map(read));
    const found = diffAll(a!, b!);
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${difference(found)}\n`);
    if (found.slower) terminal.status = WORSE;
  },
};

/** How often is measured where limits are missed: another program's load passes, what is slow stays so. */
const ATTEMPTS = 3;

export const benchCheck: Command = {
  name: "bench check",
  async run(args, terminal) {
    const [file, given] = args.operands as [string, string | undefined];
    const budget = parseBudget(file, await readText(file));
    const load = loadOptions(args);
    let [checked, attempts]: [Checked[], number] = [[], 0];
    do {
      const found = given ? parseReport(given, await readText(given)) : await measured(budget, load, terminal);
      checked = check(found, budget.limits);
      attempts++;
    } while (!given && attempts < ATTEMPTS && checked.some(({ met }) => !met));
    const met = checked.every(({ met }) => met);
    if (terminal.json) await terminal.printJson({ met, attempts, limits: checked });
    else await terminal.print(`${checkReport(checked)}\n`);
    if (!met) terminal.status = WORSE;
  },
};

function measured(budget: Budget, load: object, terminal: Terminal): Promise<BenchReport> {
  const { signal, progress: onProgress } = terminal;
  const { options = {} } = budget;
  checkBench(options);
  if ((budget.model === undefined) === (budget.shape === undefined)) {
    throw new EngineError("InvalidArgument", "the budget must name either a model or a shape", { option: "model" });
  }
  const task = { ...namedModel(budget), options, load: { ...budget.load, ...load, signal, onProgress } };
  return measure(outside, environment, { ...task, onNote: (note) => terminal.passing(note) });
}
