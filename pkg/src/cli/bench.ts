import { type BenchOptions, bench as measure } from "../bench/bench.ts";
import { diff, parseReport } from "../bench/diff.ts";
import { environment } from "../bench/environment.ts";
import { spawnEngine, toPath } from "../platform/node.ts";
import { modelOf } from "./bench_model.ts";
import { difference, report } from "./bench_report.ts";
import { readText } from "./file.ts";
import { loadOptions } from "./model.ts";
import type { Command } from "./usage.ts";

export const bench: Command = {
  name: "bench",
  async run(args, terminal) {
    const options = args.own<BenchOptions>("bench");
    const load = { ...loadOptions(args), signal: terminal.signal, onProgress: terminal.progress };
    const task = { ...modelOf(args), options, load, onNote: (note: string) => terminal.passing(note) };
    const result = await measure({ spawnEngine, base: null, toPath }, environment, task);
    if (terminal.json) await terminal.printJson(result);
    else await terminal.print(`${report(result)}\n`);
  },
};

const SLOWER = 1;

export const benchDiff: Command = {
  name: "bench diff",
  async run(args, terminal) {
    const [a, b] = await Promise.all(args.operands.map(async (file) => parseReport(file, await readText(file))));
    const found = diff(a!, b!);
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${difference(found)}\n`);
    if (found.slower) terminal.status = SLOWER;
  },
};
