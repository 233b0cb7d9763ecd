import { environment } from "../bench/environment.ts";
import { engineTarget } from "../bench/load/engine.ts";
import { picture } from "../bench/load/picture.ts";
import type { LoadPlan } from "../bench/load/plan.ts";
import { csv, kneeOf, type LoadReport, type LoadRow } from "../bench/load/report.ts";
import { run, type Target } from "../bench/load/run.ts";
import { serverTarget } from "../bench/load/server.ts";
import { LOAD_TEST, type LoadTestOptions, loadTest } from "../bench/loadtest.ts";
import { load } from "../node.ts";
import { loadPlan as rows } from "../options/table/command_line.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";
import type { Args } from "./args.ts";
import { modelOf } from "./bench_model.ts";
import { loadReport, loadTestReport } from "./bench_report.ts";
import { MEASURES } from "./either.ts";
import { readText, writeText } from "./file.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

const PERCENTILES = [50, 90, 99];
/** Tokens of a block of the KV cache. */
const BLOCK = 32;

interface PlanFlags extends Partial<Omit<LoadPlan, "prompts" | "mix">> {
  host?: string;
  serverModel?: string;
  apiKey?: string;
  chat?: boolean;
  stopAtEos?: boolean;
  prompts?: string;
  mix?: string;
  csv?: string;
  plot?: string;
}

/** Exits with 1 where an answer differs from what its prompt gets alone, or where not one request was served. */
export const loadtest: Command = {
  name: "loadtest",
  async run(args, terminal) {
    const options = args.own<LoadTestOptions>("loadtest");
    const settings = loadOptions(args, ["serving"]);
    const flags = args.own<PlanFlags>("loadPlan");
    if (MEASURES.some((key) => args.has(key))) return measured(args, terminal, settings, flags, options);
    oneModel(args);
    await compared(args, terminal, settings, options);
  },
};

/** Without a server, --model is the model, and there is one. */
function oneModel(args: Args): void {
  if (args.has("serverModel") && (args.operands.length > 0 || args.has("shape")))
    throw new UsageError("--model belongs to --host, or stands in place of MODEL and --shape");
}

const nameOf = (key: string) => key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

async function compared(args: Args, terminal: Terminal, settings: LoadOptions, options: LoadTestOptions) {
  const { signal, progress: onProgress } = terminal;
  const model = await load(modelOf(args).source, { ...settings, signal, onProgress });
  try {
    terminal.passing("asking");
    const found = await loadTest(model, options, { processBytes: () => process.memoryUsage().rss, signal });
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${loadTestReport(found)}\n`);
    if (found.wrong > 0) terminal.status = 1;
  } finally {
    await model.close();
  }
}

async function measured(
  args: Args,
  terminal: Terminal,
  settings: LoadOptions,
  flags: PlanFlags,
  { seed = LOAD_TEST.seed }: LoadTestOptions,
): Promise<void> {
  for (const key of ["clients", "seconds"] as const) {
    if (!args.has(key)) continue;
    const given = MEASURES.find((other) => args.has(other))!;
    throw new UsageError(`--${key} does not go with --${nameOf(given)}: it compares answers, which measures no load`);
  }
  if (args.has("rps") && args.has("users")) throw new UsageError("give either --rps or --users");
  const sizes = args.sweep("batchSizes") ?? [null];
  const percentiles = args.sweep("latencyPercentiles") ?? PERCENTILES;
  const plan = await planOf(flags, seed, Math.max(...sizes.map((size) => size ?? 1)));
  const { target, name, close } = await targetOf(args, terminal, settings, flags, { plan, sizes });
  try {
    const found: LoadRow[] = [];
    for (const size of sizes) {
      terminal.passing(size === null ? "asking" : `asking, ${size} in flight`);
      // Users beyond what may be in flight would only wait.
      const users = args.has("rps") ? {} : { users: flags.users ?? size ?? 1 };
      const { signal } = terminal;
      found.push(await run(target, { plan: { ...plan, ...users }, size, percentiles, signal, ...counting }));
    }
    const { duration } = plan;
    const date = new Date().toISOString();
    const about = { date, machine: environment.machine, target: name, duration, seed, percentiles };
    await write({ ...about, rows: found, knee: kneeOf(found) }, flags, terminal);
  } finally {
    await close();
  }
}

const counting = { counters: () => environment.counters?.() ?? null };

async function write(report: LoadReport, { csv: table, plot }: PlanFlags, terminal: Terminal): Promise<void> {
  if (terminal.json) await terminal.printJson(report);
  else await terminal.print(`${loadReport(report)}\n`);
  // Behind the report, which a full disk must not cost.
  if (table) await writeText("--csv", table, csv(report));
  if (plot) await writeText("--plot", plot, picture(report));
  if (report.rows.every(({ whole, aborted }) => whole + aborted === 0)) terminal.status = 1;
}

async function planOf(flags: PlanFlags, seed: number, mostInFlight: number): Promise<LoadPlan> {
  const { rps, users, mix, prompts } = flags;
  const pair = mix === undefined ? undefined : /^(\d{1,6}):(\d{1,6})$/.exec(mix);
  if (pair === null || (pair && Number(pair[1]) + Number(pair[2]) === 0)) {
    throw new UsageError(`--mix must be two numbers like 3:1, not ${mix}`, { option: "--mix" });
  }
  return {
    ...(rps === undefined ? { users: users ?? mostInFlight } : { rps }),
    duration: flags.duration ?? rows.duration.default,
    promptTokens: flags.promptTokens ?? rows.promptTokens.default,
    maxTokens: flags.maxTokens ?? rows.maxTokens.default,
    abort: flags.abort ?? rows.abort.default,
    slow: flags.slow ?? rows.slow.default,
    ...(pair ? { mix: [Number(pair[1]), Number(pair[2])] as const } : {}),
    ...(prompts === undefined ? {} : { prompts: await linesOf(prompts) }),
    seed,
  };
}

async function linesOf(file: string): Promise<string[]> {
  const lines = (await readText(file)).split(/\r?\n/).filter((line) => line.trim() !== "");
  if (lines.length === 0) throw new EngineError("BadValue", `${file} holds no prompt`, { file });
  return lines;
}

interface Opened {
  target: Target;
  name: string;
  close(): Promise<void>;
}

async function targetOf(
  args: Args,
  terminal: Terminal,
  settings: LoadOptions,
  flags: PlanFlags,
  { plan, sizes }: { plan: LoadPlan; sizes: readonly (number | null)[] },
): Promise<Opened> {
  const { signal, progress: onProgress } = terminal;
  const { host, serverModel, apiKey, chat = false, stopAtEos = false } = flags;
  if (host !== undefined) {
    if (args.operands.length > 0 || args.has("shape")) throw new UsageError("give either a model or --host");
    const named = { ...(serverModel ? { model: serverModel } : {}), ...(apiKey ? { apiKey } : {}) };
    return { ...(await serverTarget({ host, chat, stopAtEos, ...named, signal })), close: async () => {} };
  }
  oneModel(args);
  for (const key of ["apiKey", "chat", "stopAtEos"] as const) {
    if (args.has(key)) throw new UsageError(`--${nameOf(key)} belongs to --host`);
  }
  const { source, name } = modelOf(args);
  // Room for all that may be in flight, unless the caller measures another setting.
  const most = Math.max(...sizes.map((size) => size ?? 1));
  const tokens = BLOCK * Math.ceil((plan.promptTokens + plan.maxTokens + 1) / BLOCK);
  const { contextLength = tokens } = settings;
  const made = { contextLength, kvCacheTokens: Math.max(contextLength, most * tokens) };
  const room = sizes.includes(null) ? {} : { maxSequences: most, ...(plan.prompts ? {} : made) };
  const model = await load(source, { ...room, ...settings, signal, onProgress });
  const target = engineTarget(model, () => process.memoryUsage.rss());
  return { target, name, close: () => model.close() };
}
