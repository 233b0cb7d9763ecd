/** The benchmark itself: loads, runs, measures the machine, and works out what the numbers mean. */

import {
  type LoadedModel,
  loadInto,
  type Measured,
  type Outside,
  type Phase,
  type Traced,
  UnstableEngine,
} from "../api/unstable.ts";
import { checkAll } from "../options/check.ts";
import { bench as rows } from "../options/table/command_line.ts";
import type { LoadOptions, ModelInfo, ModelSource } from "../types/index.ts";
import { randomBits } from "./blocks.ts";
import {
  type BenchReport,
  type BenchSettings,
  MATRICES,
  type Machine,
  type ProfileRow,
  type Ratios,
  type Roofline,
} from "./report.ts";
import { jitter, percentile, spread, sum } from "./stats.ts";
import { traceRows } from "./trace.ts";

export interface BenchOptions extends Partial<BenchSettings> {
  /** Measures the time of each kind of operation, in additional runs. @default false */
  profile?: boolean;
  /** Records what each matrix is and which values it processes, in an additional run. @default false */
  trace?: boolean;
  /** Measures what this machine reads and multiplies at best. @default true */
  roofline?: boolean;
  /** Bytes to read for the roofline: more than the processor's caches hold. @default 640 MB, at most a quarter of what is free */
  readBytes?: number;
}

/** What the runtime reports of itself. */
export interface Environment {
  machine: Machine;
  /** The process's peak of memory so far; null where the runtime does not tell. */
  peakRssBytes(): number | null;
}

export interface BenchTask {
  source: ModelSource;
  /** The model's name in the report. */
  name: string;
  options: BenchOptions;
  load: LoadOptions;
  /** Receives what is being done, for display. */
  onNote?(note: string): void;
}

export const DEFAULTS: BenchSettings = {
  prompt: rows.prompt.default,
  decode: rows.decode.default,
  batch: rows.batch.default,
  ctx: rows.ctx.default,
  warmup: rows.warmup.default,
  repeat: rows.repeat.default,
};
const READ_BYTES = 640e6;
const STREAMS = [1, 2, 8];
/** Tokens of a prompt that is traced: fewer than the smallest chunk, so that the prompt is one step. */
const TRACED = 16;
/** Repetitions of the roofline: each is short, so there are many. */
const SAMPLES = 9;

export const checkBench = (options: object): void => void checkAll("bench", rows, options);

export async function bench(outside: Outside, environment: Environment, task: BenchTask): Promise<BenchReport> {
  checkBench(task.options);
  const { options, load, onNote = () => {} } = task;
  const { roofline = rows.roofline.default, readBytes = READ_BYTES } = options;
  const date = new Date().toISOString();
  const measured = await measureModel(outside, environment, task);
  // After the model, so that its memory is not part of the peak.
  onNote("roofline");
  const roof = roofline ? await measureRoof(outside, { readBytes, ...load }) : null;
  return reportOf(date, environment.machine, task, measured, roof);
}

/** What was measured of a model, before it is worked out. */
interface Measurements {
  info: ModelInfo;
  loadMs: number;
  runs: Measured[];
  profiled: Measured[] | null;
  traced: { tokens: number; numbers: Traced } | null;
  /** Runs through the public API; null with several conversations or tokens before the prompt. */
  ends: EndToEnd[] | null;
  peakRssBytes: number | null;
}

async function measureModel(outside: Outside, environment: Environment, task: BenchTask): Promise<Measurements> {
  const { options, load, onNote = () => {} } = task;
  const { prompt, decode, batch, ctx, warmup, repeat } = withDefaults(options);
  const { signal } = load;
  // All conversations share one cache of the context's length, which is counted in blocks.
  const contextLength = batch * 32 * Math.ceil((ctx + prompt + decode + 1) / 32);

  onNote("loading");
  const engine = new UnstableEngine(outside);
  try {
    const start = performance.now();
    const settings = { contextLength, maxSequences: batch, prefixReuse: false, ...load };
    const model = await loadInto(engine, outside, task.source, settings);
    const loadMs = performance.now() - start;
    const { info } = model;
    const random = randomBits(1);
    // Random ids, so that no two conversations share a beginning.
    const ids = (count: number) => Array.from({ length: count }, () => random() % info.vocab);
    const lists = (count: number) => Array.from({ length: count > 0 ? batch : 0 }, () => ids(count));
    const run = { past: lists(ctx), prompts: lists(prompt), decode };
    const measured = (count: number, profile: boolean, what: string) =>
      times(count, (i) => {
        onNote(`${what} ${i + 1} of ${count}`);
        return engine.measure({ ...run, profile }, signal);
      });

    await measured(warmup, false, "warming up");
    const runs = await measured(repeat, false, "run");
    const first = run.prompts[0]!;
    const traced = (options.trace ?? rows.trace.default) ? await engine.trace(first.slice(0, TRACED), signal) : null;
    const profiled = (options.profile ?? rows.profile.default) ? await measured(repeat, true, "profile") : null;
    const alone = batch === 1 && ctx === 0;
    onNote("end to end");
    const ends = alone ? await times(warmup + repeat, () => endToEnd(model, first, decode, signal)) : null;
    return {
      info,
      loadMs,
      runs,
      profiled,
      traced: traced && { tokens: Math.min(TRACED, prompt), numbers: traced },
      ends: ends?.slice(warmup) ?? null,
      peakRssBytes: environment.peakRssBytes(),
    };
  } finally {
    await engine.close();
  }
}

function reportOf(
  date: string,
  machine: Machine,
  task: BenchTask,
  measured: Measurements,
  roof: Roofline | null,
): BenchReport {
  const { info, loadMs, runs, profiled, traced, ends, peakRssBytes } = measured;
  const settings = withDefaults(task.options);
  const { prompt, decode, batch } = settings;
  const decodes = runs.map(({ decode }) => decode);
  const prefills = runs.map(({ prefill }) => prefill);
  const bytesPerStep =
    sum(decodes.map(({ weightBytes }) => weightBytes)) / sum(decodes.map(({ steps }) => steps.length));
  const prefill = {
    tokensPerSecond: spread(prefills.map(({ ms }) => (1000 * batch * prompt) / ms)),
    gmacPerSecond: median(prefills, ({ weightMacs, ms }) => weightMacs / ms / 1e6),
  };
  const decoding = {
    tokensPerSecond: spread(decodes.map(({ ms }) => (1000 * batch * decode) / ms)),
    stepMs: stepTimes(decodes),
    bytesPerStep,
    bytesPerToken: bytesPerStep / batch,
    gbPerSecond: median(decodes, ({ weightBytes, ms }) => weightBytes / ms / 1e6),
  };
  const profile = profiled && {
    prefill: profileRows(profiled, (run) => run.prefill),
    decode: profileRows(profiled, (run) => run.decode),
  };
  const { operations } = runs[0]!;
  const stepMs = median(decodes, ({ steps }) => sum(steps) / decode);
  return {
    date,
    machine,
    ...aboutModel(info, task.name, bytesPerStep),
    settings,
    loadMs,
    prefill,
    decode: decoding,
    endToEnd: ends && throughTheApi(ends, decode, stepMs),
    memory: {
      wasmBytes: runs.at(-1)!.memoryBytes,
      grownBytes: sum([...prefills, ...decodes].map(({ grownBytes }) => grownBytes)),
      peakRssBytes,
    },
    roofline: roof,
    ratios: roof && ratios(roof, decoding.gbPerSecond, prefill.gmacPerSecond, profile),
    profile,
    trace: traced && {
      tokens: traced.tokens,
      prefill: traceRows(traced.numbers.prefill, operations),
      decode: traceRows(traced.numbers.decode, operations),
    },
  };
}

function aboutModel(info: ModelInfo, source: string, weightBytes: number): Pick<BenchReport, "engine" | "model"> {
  const { flavour, dotProduct, weightPrefetch, threads, threadsReason, kvCacheType, contextLength, activations } = info;
  const { name, architecture, parameters, bitsPerWeight, kinds, config } = info;
  return {
    engine: { flavour, dotProduct, weightPrefetch, threads, threadsReason, kvCacheType, contextLength, activations },
    model: { source, name, architecture, parameters, bitsPerWeight, kinds, config, weightBytes },
  };
}

function stepTimes(decodes: readonly Phase[]): BenchReport["decode"]["stepMs"] {
  const steps = decodes.flatMap(({ steps }) => steps);
  return {
    p50: percentile(steps, 50),
    p95: percentile(steps, 95),
    p99: percentile(steps, 99),
    mean: sum(steps) / steps.length,
    jitter: sum(decodes.map(({ steps }) => jitter(steps))) / decodes.length,
  };
}

export function withDefaults(options: BenchOptions): BenchSettings {
  const { prompt, decode, batch, ctx, warmup, repeat } = { ...DEFAULTS, ...options };
  return { prompt, decode, batch, ctx, warmup, repeat };
}

async function times<T>(count: number, work: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let i = 0; i < count; i++) results.push(await work(i));
  return results;
}

const median = <T>(items: readonly T[], value: (item: T) => number) => percentile(items.map(value), 50);

interface EndToEnd {
  firstMs: number;
  restMs: number;
}

async function endToEnd(model: LoadedModel, ids: number[], decode: number, signal?: AbortSignal): Promise<EndToEnd> {
  const start = performance.now();
  const options = { temperature: 0, maxTokens: decode + 1, ignoreEos: true, ...(signal ? { signal } : {}) };
  const generation = model.generate(ids, options);
  let first = 0;
  for await (const _ of generation) first ||= performance.now();
  const { timings } = await generation.finished;
  // Pieces come several at a time: the first piece arrives later than the first token is made.
  return { firstMs: first - start, restMs: performance.now() - start - timings.ttftMs };
}

function throughTheApi(runs: readonly EndToEnd[], decode: number, stepMs: number): BenchReport["endToEnd"] {
  return {
    tokensPerSecond: spread(runs.map(({ restMs }) => (1000 * decode) / restMs)),
    firstTokenMs: spread(runs.map(({ firstMs }) => firstMs)),
    overheadMsPerToken: median(runs, ({ restMs }) => restMs / decode) - stepMs,
  };
}

async function measureRoof(
  outside: Outside,
  { readBytes, threads, flavour, dotProduct, signal }: LoadOptions & { readBytes: number },
): Promise<Roofline> {
  const engine = new UnstableEngine(outside);
  const settings = { ...(threads && { threads }), ...(flavour && { flavour }), ...(dotProduct && { dotProduct }) };
  try {
    const args = { settings, bytes: readBytes, streams: STREAMS, repeat: SAMPLES };
    const found = await engine.roofline(args, signal);
    const read = STREAMS.map((streams, i) => ({ streams, gbPerSecond: spread(found.read[i]!) }));
    const multiply = spread(found.multiply);
    const gbPerSecond = Math.max(...read.map(({ gbPerSecond }) => gbPerSecond.median));
    return { bytes: found.bytes, read, gbPerSecond, gmacPerSecond: multiply.median, multiply };
  } finally {
    await engine.close();
  }
}

/** The mean of several runs, the longest operation first. */
function profileRows(runs: readonly Measured[], phase: (run: Measured) => Phase): ProfileRow[] {
  const mean = (value: (phase: Phase) => number) => sum(runs.map((run) => value(phase(run)))) / runs.length;
  const all = mean(({ ms }) => ms);
  const row = (operation: string, calls: number, ms: number, bytes: number, products: number): ProfileRow => {
    const rates = { gbPerSecond: rate(bytes, ms), gmacPerSecond: rate(products, ms) };
    return { operation, calls, ms, share: ms / all, bytes, ...rates };
  };
  const rows = runs[0]!.operations.map((operation, i) => {
    const column = (at: number) => mean(({ profile }) => profile[4 * i + at]!);
    return row(operation, column(0), column(1), column(2), column(3));
  });
  const other = all - sum(rows.map(({ ms }) => ms));
  return [...rows, row("other", 0, other, 0, 0)].sort((a, b) => b.ms - a.ms);
}

const rate = (amount: number, ms: number) => (ms > 0 ? amount / ms / 1e6 : 0);

function ratios(roof: Roofline, decodeGb: number, prefillGmac: number, profile: BenchReport["profile"]): Ratios {
  const inside = (rows: readonly ProfileRow[], value: (row: ProfileRow) => number) => {
    const matrices = rows.filter(({ operation }) => MATRICES.includes(operation));
    return sum(matrices.map((row) => value(row) * row.ms)) / sum(matrices.map(({ ms }) => ms));
  };
  return {
    decodeToRead: decodeGb / roof.gbPerSecond,
    prefillToMultiply: prefillGmac / roof.gmacPerSecond,
    decodeMatricesToRead: profile && inside(profile.decode, (row) => row.gbPerSecond) / roof.gbPerSecond,
    prefillMatricesToMultiply: profile && inside(profile.prefill, (row) => row.gmacPerSecond) / roof.gmacPerSecond,
  };
}
