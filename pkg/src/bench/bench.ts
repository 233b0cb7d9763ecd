/** The benchmark itself: loads, runs, measures the machine, and works out what the numbers mean. */

import { LoadedModel, type Outside } from "../api/model.ts";
import { checkAll } from "../options/check.ts";
import { bench as rows } from "../options/table/command_line.ts";
import { Client } from "../rpc/client.ts";
import type { Phase, Verbs } from "../rpc/protocol.ts";
import { toSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions, ModelSource } from "../types/index.ts";
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
  /** Time of each kind of operation, in runs of their own. @default false */
  profile?: boolean;
  /** What each matrix is and which numbers it meets, in a run of its own. @default false */
  trace?: boolean;
  /** What this machine reads and multiplies at best. @default true */
  roofline?: boolean;
  /** Bytes to read for it: more than its caches hold. @default 640 MB, at most a quarter of what is free */
  readBytes?: number;
}

/** What the runtime knows of itself. */
export interface Environment {
  machine: Machine;
  /** Peak of the process so far; null where nobody tells. */
  peakRssBytes(): number | null;
}

export interface BenchTask {
  source: ModelSource;
  /** How the report calls it. */
  name: string;
  options: BenchOptions;
  load: LoadOptions;
  /** Hears what is being done. */
  onNote?(note: string): void;
}

const { prompt, decode, batch, ctx, warmup, repeat } = rows;
export const DEFAULTS: BenchSettings = {
  prompt: prompt.default,
  decode: decode.default,
  batch: batch.default,
  ctx: ctx.default,
  warmup: warmup.default,
  repeat: repeat.default,
};
const READ_BYTES = 640e6;
const STREAMS = [1, 2, 8];
/** Tokens of a prompt that is traced: fewer than the least piece that a prompt is cut into. */
const TRACED = 16;
/** Of the roofline: short, so many. */
const SAMPLES = 9;

export const checkBench = (options: object): void => void checkAll("bench", rows, options);

export async function bench(outside: Outside, environment: Environment, task: BenchTask): Promise<BenchReport> {
  const { source, name, options, load, onNote = () => {} } = task;
  checkBench(options);
  const { profile = rows.profile.default, trace = rows.trace.default } = options;
  const { roofline = rows.roofline.default, readBytes = READ_BYTES } = options;
  const settings = withDefaults(options);
  const { prompt, decode, batch, ctx, warmup, repeat } = settings;
  const { signal, onProgress, ...engineSettings } = load;
  const date = new Date().toISOString();
  // All conversations share one cache of the context's length, which is counted in blocks.
  const contextLength = batch * 32 * Math.ceil((ctx + prompt + decode + 1) / 32);

  onNote("loading");
  const client = new Client(outside.spawnEngine());
  try {
    const start = performance.now();
    const info = await client.call(
      "load",
      {
        source: toSpec(source, outside),
        settings: { contextLength, maxSequences: batch, prefixReuse: false, ...engineSettings },
      },
      { signal, ...(onProgress ? { onEvent: onProgress } : {}) },
    );
    const loadMs = performance.now() - start;
    const random = randomBits(1);
    // Nobody shares a beginning with anybody.
    const ids = (count: number) => Array.from({ length: count }, () => random() % info.vocab);
    const lists = (count: number) => Array.from({ length: count > 0 ? batch : 0 }, () => ids(count));
    const run = { past: lists(ctx), prompts: lists(prompt), decode };
    const measured = (count: number, profile: boolean, what: string) =>
      times(count, (i) => {
        onNote(`${what} ${i + 1} of ${count}`);
        return client.call("measure", { ...run, profile }, { signal });
      });

    await measured(warmup, false, "warming up");
    const runs = await measured(repeat, false, "run");
    const traced = trace ? run.prompts[0]!.slice(0, TRACED) : [];
    const told = trace ? await client.call("trace", { ids: traced }, { signal }) : null;
    const profiled = profile ? await measured(repeat, true, "profile") : null;
    const alone = batch === 1 && ctx === 0;
    onNote("end to end");
    const model = new LoadedModel(client, info);
    const ends = alone ? await times(warmup + repeat, () => endToEnd(model, run.prompts[0]!, decode, signal)) : [];
    const peakRssBytes = environment.peakRssBytes();
    await client.close(new EngineError("Closed", "the model is closed"));

    // After the model, so that its memory is not part of the peak.
    onNote("roofline");
    const roof = roofline ? await measureRoof(outside, { readBytes, ...load }) : null;

    const decodes = runs.map(({ decode }) => decode);
    const prefills = runs.map(({ prefill }) => prefill);
    const steps = decodes.flatMap(({ steps }) => steps);
    const bytesPerStep = sum(decodes.map(({ weightBytes }) => weightBytes)) / steps.length;
    const stepMs = {
      p50: percentile(steps, 50),
      p95: percentile(steps, 95),
      p99: percentile(steps, 99),
      mean: sum(steps) / steps.length,
      jitter: sum(decodes.map(({ steps }) => jitter(steps))) / decodes.length,
    };
    const prefill = {
      tokensPerSecond: spread(prefills.map(({ ms }) => (1000 * batch * prompt) / ms)),
      gmacPerSecond: median(prefills, ({ weightMacs, ms }) => weightMacs / ms / 1e6),
    };
    const decoding = {
      tokensPerSecond: spread(decodes.map(({ ms }) => (1000 * batch * decode) / ms)),
      stepMs,
      bytesPerStep,
      bytesPerToken: bytesPerStep / batch,
      gbPerSecond: median(decodes, ({ weightBytes, ms }) => weightBytes / ms / 1e6),
    };
    const rows = profiled && {
      prefill: profileRows(profiled, (run) => run.prefill),
      decode: profileRows(profiled, (run) => run.decode),
    };
    const [{ operations }] = runs as [Verbs["measure"]["result"]];
    const { flavour, dotProduct, threads, threadsReason, kvCacheType, activations } = info;
    const { architecture, parameters, bitsPerWeight, kinds, config } = info;
    return {
      date,
      machine: environment.machine,
      engine: {
        flavour,
        dotProduct,
        threads,
        threadsReason,
        kvCacheType,
        contextLength: info.contextLength,
        activations,
      },
      model: {
        source: name,
        name: info.name,
        architecture,
        parameters,
        bitsPerWeight,
        kinds,
        config,
        weightBytes: bytesPerStep,
      },
      settings,
      loadMs,
      prefill,
      decode: decoding,
      endToEnd: alone
        ? throughTheApi(
            ends.slice(warmup),
            decode,
            median(decodes, ({ steps }) => sum(steps) / decode),
          )
        : null,
      memory: {
        wasmBytes: runs.at(-1)!.memoryBytes,
        grownBytes: sum([...prefills, ...decodes].map(({ grownBytes }) => grownBytes)),
        peakRssBytes,
      },
      roofline: roof,
      ratios: roof && ratios(roof, decoding.gbPerSecond, prefill.gmacPerSecond, rows),
      profile: rows,
      trace: told && {
        tokens: traced.length,
        prefill: traceRows(told.prefill, operations),
        decode: traceRows(told.decode, operations),
      },
    };
  } finally {
    await client.close(new EngineError("Closed", "the model is closed"));
  }
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
  // Pieces come several at a time, so that the first to come is not the first to be made.
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
  const client = new Client(outside.spawnEngine());
  const settings = { ...(threads && { threads }), ...(flavour && { flavour }), ...(dotProduct && { dotProduct }) };
  try {
    const args = { settings, bytes: readBytes, streams: STREAMS, repeat: SAMPLES };
    const found: Verbs["roofline"]["result"] = await client.call("roofline", args, { signal });
    const read = STREAMS.map((streams, i) => ({ streams, gbPerSecond: spread(found.read[i]!) }));
    const multiply = spread(found.multiply);
    const gbPerSecond = Math.max(...read.map(({ gbPerSecond }) => gbPerSecond.median));
    return { bytes: found.bytes, read, gbPerSecond, gmacPerSecond: multiply.median, multiply };
  } finally {
    await client.close(new EngineError("Closed", "the benchmark is over"));
  }
}

type Run = Verbs["measure"]["result"];

/** The mean of some runs, the longest operation first. */
function profileRows(runs: readonly Run[], phase: (run: Run) => Phase): ProfileRow[] {
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
