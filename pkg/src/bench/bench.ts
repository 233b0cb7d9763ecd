/** The benchmark itself: runs, measures the machine, and works out what the numbers mean. */

import { type Measured, type Outside, type Phase, UnstableEngine } from "../api/unstable.ts";
import { checkAll } from "../options/check.ts";
import { bench as rows } from "../options/table/command_line.ts";
import type { LoadOptions, ModelInfo, ModelSource } from "../types/index.ts";
import { processUse } from "./counters.ts";
import {
  type BenchReport,
  type BenchSettings,
  MATRICES,
  type Machine,
  type ProfileRow,
  type Ratios,
  type Roofline,
} from "./report.ts";
import { Bench, type EndToEnd, type Measurements, type TraceNumbers, type Watched } from "./runs.ts";
import { jitter, percentile, spread, sum } from "./stats.ts";
import { layerTimes, matrixTimes, traceRows } from "./trace.ts";

export interface BenchOptions extends Partial<BenchSettings> {
  /** Measures the time of each kind of operation, in additional runs. @default false */
  profile?: boolean;
  /** Records what each matrix is, which values it processes and what time it takes, in additional runs. @default false */
  trace?: boolean;
  /** Repeats runs for so many seconds behind the others, to see how speed and memory go on. @default none */
  seconds?: number;
  /** Measures what this machine reads and multiplies at best. @default true */
  roofline?: boolean;
  /** Bytes to read for the roofline: more than the processor's caches hold. @default 640 MB, at most a quarter of what is free */
  readBytes?: number;
}

/** What the runtime reports of itself. */
export interface Environment extends Watched {
  machine: Machine;
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
/** Repetitions of the roofline: each is short, so there are many. */
const SAMPLES = 9;

export const checkBench = (options: object): void => void checkAll("bench", rows, options);

export async function bench(outside: Outside, environment: Environment, task: BenchTask): Promise<BenchReport> {
  checkBench(task.options);
  const [report] = await reportAll(outside, environment, task, [withDefaults(task.options)]);
  return report!;
}

/** Reports of several settings, from one load and one look at the machine. Options are not checked. */
export async function reportAll(
  outside: Outside,
  environment: Environment,
  task: BenchTask,
  points: readonly BenchSettings[],
): Promise<BenchReport[]> {
  const { options, load, source, name, onNote = () => {} } = task;
  const { roofline = rows.roofline.default, readBytes = READ_BYTES } = options;
  const { profile = rows.profile.default, trace = rows.trace.default, seconds = 0 } = options;
  const about = { date: new Date().toISOString(), machine: environment.machine, name };
  let point = "";
  const note = (text: string) => onNote(point + text);
  const measured = await Bench.with(outside, environment, { source, load, note }, points, async (bench) => {
    const found: Loaded[] = [];
    for (const settings of points) {
      if (points.length > 1) point = `batch ${settings.batch}, past ${settings.ctx}: `;
      const measurements = await bench.measure(settings, { profile, trace, seconds });
      found.push({ ...measurements, settings, info: bench.info, loadMs: bench.loadMs });
    }
    return found;
  });
  // After the model, so that its memory is not part of the peak.
  onNote("roofline");
  const roof = roofline ? await measureRoof(outside, { readBytes, ...load }) : null;
  return measured.map((one) => reportOf(about, one, roof));
}

/** What was measured of a model with some settings. */
interface Loaded extends Measurements {
  settings: BenchSettings;
  info: ModelInfo;
  loadMs: number;
}

function reportOf(
  { date, machine, name }: { date: string; machine: Machine; name: string },
  measured: Loaded,
  roof: Roofline | null,
): BenchReport {
  const { info, settings, loadMs, runs, profiled, traced, ends, overTime, peakRssBytes } = measured;
  const { prompt, decode, batch } = settings;
  const decodes = runs.map(({ decode }) => decode);
  const prefills = runs.map(({ prefill }) => prefill);
  const decoding = decodeOf(decodes, settings);
  const prefill = {
    tokensPerSecond: spread(prefills.map(({ ms }) => (1000 * batch * prompt) / ms)),
    gmacPerSecond: median(prefills, ({ weightMacs, ms }) => weightMacs / ms / 1e6),
  };
  const profile = profiled && {
    prefill: profileRows(profiled, (run) => run.prefill),
    decode: profileRows(profiled, (run) => run.decode),
  };
  const stepMs = median(decodes, ({ steps }) => sum(steps) / decode);
  return {
    date,
    machine,
    ...aboutModel(info, name, decoding.bytesPerStep),
    settings,
    loadMs,
    prefill,
    decode: decoding,
    endToEnd: ends && throughTheApi(ends, decode, stepMs),
    process: processUse(measured.counted, info.threads),
    memory: {
      wasmBytes: runs.at(-1)!.memoryBytes,
      grownBytes: sum([...prefills, ...decodes].map(({ grownBytes }) => grownBytes)),
      peakRssBytes,
    },
    roofline: roof,
    ratios: roof && ratios(roof, decoding.gbPerSecond, prefill.gmacPerSecond, profile),
    profile,
    trace: traced && traceOf(traced, runs[0]!.operations),
    overTime,
  };
}

function decodeOf(decodes: readonly Phase[], { batch, decode }: BenchSettings): BenchReport["decode"] {
  const steps = decodes.flatMap(({ steps }) => steps);
  const tail = (p: number) => spread(decodes.map(({ steps }) => percentile(steps, p)));
  const bytesPerStep = sum(decodes.map(({ weightBytes }) => weightBytes)) / steps.length;
  return {
    tokensPerSecond: spread(decodes.map(({ ms }) => (1000 * batch * decode) / ms)),
    stepMs: {
      p50: percentile(steps, 50),
      p95: percentile(steps, 95),
      p99: percentile(steps, 99),
      mean: sum(steps) / steps.length,
      jitter: sum(decodes.map(({ steps }) => jitter(steps))) / decodes.length,
    },
    tailMs: { p95: tail(95), p99: tail(99) },
    bytesPerStep,
    bytesPerToken: bytesPerStep / batch,
    gbPerSecond: median(decodes, ({ weightBytes, ms }) => weightBytes / ms / 1e6),
  };
}

function traceOf({ tokens, numbers, times, each }: TraceNumbers, operations: readonly string[]): BenchReport["trace"] {
  const decode = traceRows(numbers.decode, operations);
  const names = decode.map(({ name }) => name);
  return {
    tokens,
    prefill: traceRows(numbers.prefill, operations),
    decode,
    matrices: matrixTimes(names, times),
    layers: {
      prefill: layerTimes(
        each.map(({ prefill }) => prefill.profile),
        operations,
      ),
      decode: layerTimes(
        each.map(({ decode }) => decode.profile),
        operations,
      ),
    },
  };
}

function aboutModel(info: ModelInfo, source: string, weightBytes: number): Pick<BenchReport, "engine" | "model"> {
  const { flavour, dotProduct, weightPrefetch, ternaryPacking, oneBitSums, threads, threadsReason, ...rest } = info;
  const { kvCacheType, contextLength, activations } = rest;
  const { name, architecture, parameters, bitsPerWeight, kinds, config } = info;
  return {
    engine: {
      flavour,
      dotProduct,
      weightPrefetch,
      ...(ternaryPacking && { ternaryPacking }),
      ...(oneBitSums && { oneBitSums }),
      threads,
      threadsReason,
      kvCacheType,
      contextLength,
      activations,
    },
    model: { source, name, architecture, parameters, bitsPerWeight, kinds, config, weightBytes },
  };
}

export function withDefaults(options: BenchOptions): BenchSettings {
  const { prompt, decode, batch, ctx, warmup, repeat } = { ...DEFAULTS, ...options };
  return { prompt, decode, batch, ctx, warmup, repeat };
}

const median = <T>(items: readonly T[], value: (item: T) => number) => percentile(items.map(value), 50);

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
