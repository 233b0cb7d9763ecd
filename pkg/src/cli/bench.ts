import { type BenchOptions, checkBench, bench as measure } from "../bench/bench.ts";
import { diff, parseReport } from "../bench/diff.ts";
import { environment } from "../bench/environment.ts";
import { checkLoadTest, loadTest } from "../bench/loadtest.ts";
import { shapes } from "../bench/shapes.ts";
import { synthetic } from "../bench/synthetic.ts";
import { load } from "../node.ts";
import { spawnEngine, toPath } from "../platform/node.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { ModelSource } from "../types/index.ts";
import type { Args } from "./args.ts";
import { crowdReport, difference, report } from "./bench_report.ts";
import { readText } from "./file.ts";
import { engine, type FlagName, number, serving } from "./flags.ts";
import { loadOptions, source } from "./model.ts";
import type { Terminal } from "./terminal.ts";
import { type Command, UsageError } from "./usage.ts";

const numbers: readonly FlagName[] = ["prompt", "decode", "batch", "ctx", "warmup", "repeat"];
const crowding: readonly FlagName[] = ["clients", "seconds", "seed"];
const synthesis: readonly FlagName[] = ["shape", "type", "embedding-type"];

export const bench: Command = {
  name: "bench",
  summary: "Measures how fast a model runs here, and what this machine could do at best.",
  operands: [],
  optional: ["MODEL"],
  needs: `(MODEL | --shape ${Object.keys(shapes).join("|")})`,
  flags: [...numbers, "profile", "trace", "no-roofline", ...synthesis, "load", ...crowding, ...serving],
  meanings: {
    prompt: { value: "N", option: "prompt", read: number, help: "tokens of the prompt (default 128)" },
    seed: { value: "S", option: "seed", read: number, help: "with --load: of prompts, lengths and whims (default 1)" },
    type: { value: "T", help: "its storage type, with others for single matrices: tq2_0,ffn_down=q6_k" },
  },
  async run(args, terminal) {
    if (args.has("load")) return underLoad(args, terminal);
    const alone = [...crowding, ...serving].find((name) => args.has(name));
    if (alone) throw new UsageError(`--${alone} belongs to --load`, { option: `--${alone}` });
    const options: BenchOptions = args.checked([...numbers, "profile", "trace"], checkBench);
    const load = { ...loadOptions(args), signal: terminal.signal, onProgress: terminal.progress };
    const task = {
      ...modelOf(args),
      options: { ...options, roofline: !args.has("no-roofline") },
      load,
      onNote: (note: string) => terminal.passing(note),
    };
    const result = await measure({ spawnEngine, base: null, toPath }, environment, task);
    if (terminal.json) await terminal.printJson(result);
    else await terminal.print(`${report(result)}\n`);
  },
};

/** Exits 1 when anybody got something else than it gets alone. */
async function underLoad(args: Args, terminal: Terminal): Promise<void> {
  const other = [...numbers, "profile" as const, "trace" as const, "no-roofline" as const].find((name) =>
    args.has(name),
  );
  if (other) throw new UsageError(`--${other} does not go with --load`, { option: `--${other}` });
  const options = args.checked(crowding, checkLoadTest);
  const { signal, progress: onProgress } = terminal;
  const model = await load(modelOf(args).source, {
    ...args.options("load", [...engine, ...serving]),
    signal,
    onProgress,
  });
  try {
    terminal.passing("asking");
    const found = await loadTest(model, options, { processBytes: () => process.memoryUsage().rss, signal });
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${crowdReport(found)}\n`);
    if (found.wrong > 0) terminal.status = 1;
  } finally {
    await model.close();
  }
}

function modelOf(args: Args): { source: ModelSource; name: string } {
  const shape = args.text("shape");
  const [model] = args.operands;
  if ((shape === undefined) === (model === undefined)) throw new UsageError("give either MODEL or --shape");
  const [type, embedding] = [args.text("type"), args.text("embedding-type")];
  if (shape === undefined) {
    if (type ?? embedding) throw new UsageError("--type and --embedding-type belong to --shape");
    return { source: source(args), name: shownSource(model!) };
  }
  const words = { shape, ...(type ? { type } : {}), ...(embedding ? { embedding } : {}) };
  try {
    return { source: synthetic(words), name: Object.values(words).join(" ") };
  } catch (error) {
    throw error instanceof EngineError ? new UsageError(error.message, error.detail) : error;
  }
}

const SLOWER = 1;

export const benchDiff: Command = {
  name: "bench diff",
  summary: "Compares two reports of bench --json; exits 1 when the second is slower by more than both varied.",
  operands: ["A.json", "B.json"],
  flags: [],
  async run(args, terminal) {
    const [a, b] = await Promise.all(args.operands.map(async (file) => parseReport(file, await readText(file))));
    const found = diff(a!, b!);
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${difference(found)}\n`);
    if (found.slower) terminal.status = SLOWER;
  },
};
