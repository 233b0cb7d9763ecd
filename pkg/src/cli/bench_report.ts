/** The report of a benchmark as text. */

import type { Checked } from "../bench/budget.ts";
import type { Diff } from "../bench/diff.ts";
import type { LoadReport } from "../bench/load/report.ts";
import type { LoadTestReport } from "../bench/loadtest.ts";
import type {
  BenchReport,
  LayerTime,
  MatrixTime,
  OverTime,
  ProfileRow,
  SweepReport,
  TimeSpan,
  TraceRow,
  TraceValues,
} from "../bench/report.ts";
import type { Spread } from "../bench/stats.ts";
import { bytes, count, ms, percent, plural, table } from "./format.ts";

export function report(found: BenchReport): string {
  const { machine, engine, model, settings } = found;
  const parts = [
    `${model.name ?? model.source}: ${model.architecture}, ${count(model.parameters)} parameters, ${bytes(model.weightBytes)} a step`,
    `${engine.flavour}, ${engine.dotProduct}, ${prefetched(engine.weightPrefetch)}${packed(engine)}${plural(engine.threads, "thread")}, activations ${engine.activations}, KV ${engine.kvCacheType}`,
    `${machine.runtime} on ${machine.cpu ?? "an unknown processor"}, ${found.date}`,
    "",
    table("lrll", speeds(found)),
    "",
    table("ll", facts(found)),
  ];
  const { profile } = found;
  if (profile) {
    const head = ["", "ms", "share", "calls", "GB/s", "GMAC/s"];
    const phases: [string, ProfileRow[]][] = [
      [`prefill of ${settings.prompt}`, profile.prefill],
      [`decode of ${settings.decode}`, profile.decode],
    ];
    for (const [name, rows] of phases) parts.push("", name, table("lrrrrr", [head, ...rows.map(profiled)]));
  }
  if (found.trace) {
    const { tokens, prefill, decode } = found.trace;
    const head = ["", "rows", "cols", "bits", "scales", "rounded", ...["in", "out"].flatMap(ranged), ""];
    const phases: [string, TraceRow[]][] = [
      [`a prompt of ${plural(tokens, "token")}`, prefill],
      ["the token after it", decode],
    ];
    for (const [name, rows] of phases) parts.push("", name, table("lrrrllrrrrrrl", [head, ...rows.map(traced)]));
    parts.push(...timed(found.trace));
  }
  if (found.overTime) parts.push("", ...course(found.overTime));
  return parts.join("\n");
}

/** The times of a trace. */
function timed({ tokens, matrices, layers }: NonNullable<BenchReport["trace"]>): string[] {
  const head = ["", "bytes", "ms", "GB/s", "read alone, ms", "unpacking"];
  const rows = matrices.map(({ name, bytes: size, ms, gbPerSecond, readMs, unpackShare }: MatrixTime) => {
    return [
      name,
      bytes(size),
      ms.toFixed(4),
      fixed(gbPerSecond),
      readMs.toFixed(4),
      unpackShare === null ? "" : percent(unpackShare),
    ];
  });
  const all = (phase: LayerTime[]) => {
    const names = [...new Set(phase.flatMap(({ operations }) => Object.keys(operations)))];
    const cells = phase.map(({ layer, operations, ms }) => {
      const times = names.map((name) => operations[name]?.ms.toFixed(4) ?? "");
      return [layer === null ? "outside" : `blk.${layer}`, ...times, ms.toFixed(4)];
    });
    return table(`l${"r".repeat(names.length + 1)}`, [["", ...names, "all"], ...cells]);
  };
  return [
    ...["", "the time of each matrix alone, with one token", table("lrrrrr", [head, ...rows])],
    ...["", `milliseconds of each layer, a prompt of ${plural(tokens, "token")}`, all(layers.prefill)],
    ...["", "milliseconds of each layer, a token after it", all(layers.decode)],
  ];
}

function course({ seconds, spans, first, last, speed, growth }: OverTime): string[] {
  const row = (name: string, { tokensPerSecond, wasmBytes, processBytes }: TimeSpan) => {
    const memory = processBytes === null ? "" : bytes(processBytes);
    return [name, fixed(tokensPerSecond), bytes(wasmBytes), memory];
  };
  const named = ({ from, to }: TimeSpan) => `${from.toFixed(0)} to ${to.toFixed(0)} s`;
  const ends = [row(`first, ${named(first)}`, first), row(`last, ${named(last)}`, last)];
  const process = growth.process === null ? "" : `, the process ${percent(growth.process)}`;
  return [
    `over ${seconds.toFixed(0)} s`,
    table("lrrr", [
      ["", "tokens/s", "wasm memory", "process"],
      ...spans.map((span) => row(named(span), span)),
      ...ends,
    ]),
    `  last ÷ first: ${percent(speed)} of the speed; wasm memory grew by ${percent(growth.wasm)}${process}`,
  ];
}

export function sweepReport({ sweep, reports, batchKnees, ctxKnees }: SweepReport): string {
  const { engine, machine, model } = reports[0]!;
  const head = ["batch", "past", "prefill", "decode", "a step, p50", "p95", "GB/s", "cores"];
  const rows = reports.map(({ settings, prefill, decode, process }) => [
    String(settings.batch),
    String(settings.ctx),
    fixed(prefill.tokensPerSecond.median),
    fixed(decode.tokensPerSecond.median),
    ...[decode.stepMs.p50, decode.stepMs.p95].map((value) => `${value.toFixed(value < 10 ? 3 : 1)} ms`),
    fixed(decode.gbPerSecond),
    process ? process.cpuCores.toFixed(2) : "",
  ]);
  const batches = batchKnees.map(({ ctx, knee }) => {
    const behind = sweep.ctx.length > 1 ? ` behind ${plural(ctx, "token")}` : "";
    return knee === null
      ? `no knee${behind}: speed still rises at a batch of ${sweep.batch.at(-1)}`
      : `the knee${behind} is a batch of ${knee}: more conversations add little speed`;
  });
  const pasts = ctxKnees.map(({ batch, knee, baseMs, msPer1000, doublesAt }) => {
    const of = sweep.batch.length > 1 ? ` with a batch of ${batch}` : "";
    const found =
      knee === null
        ? `no knee${of}: a step's time rises evenly`
        : `the knee${of} is a past of ${knee}: behind it a step's time rises faster`;
    const doubles = doublesAt === null ? "" : `, doubled at ${plural(Math.round(doublesAt), "token")}`;
    return `${found}; ${baseMs.toFixed(2)} ms without a past, ${msPer1000.toFixed(3)} ms more for 1000 tokens${doubles}`;
  });
  return [
    `${model.name ?? model.source}: ${engine.flavour}, ${plural(engine.threads, "thread")}, ${machine.runtime} on ${machine.cpu ?? "an unknown processor"}`,
    "",
    table("rrrrrrrr", [head, ...rows]),
    ...[...batches, ...pasts].map((line) => `  ${line}`),
  ].join("\n");
}

export function checkReport(checked: readonly Checked[]): string {
  const shown = (value: number | undefined) => (value === undefined ? "" : value.toPrecision(4));
  const rows = checked.map(({ what, per, least, most, found, met }) => {
    return [per ? `${what} ÷ ${per}` : what, shown(found), shown(least), shown(most), met ? "" : "missed"];
  });
  return table("lrrrl", [["", "found", "least", "most", ""], ...rows]);
}

const ranged = (what: string) => [`${what}: min`, "max", "rms"];

function traced({ name, rows, cols, bits, scales, activations, input, output }: TraceRow): string[] {
  const shown = ({ min, max, rms }: TraceValues) => [min, max, rms].map((value) => value?.toPrecision(4) ?? "");
  const nan = input.nan + output.nan > 0 ? `${input.nan} NaN in, ${output.nan} out` : "";
  const layout = [String(rows), String(cols), String(bits), scales, activations];
  return [name, ...layout, ...shown(input), ...shown(output), nan];
}

const fixed = (value: number) => (value < 100 ? value.toFixed(1) : value.toFixed(0));
const range = ({ least, most, runs }: Spread) => `${fixed(least)} to ${fixed(most)} in ${plural(runs.length, "run")}`;

function speeds({ settings, prefill, decode, endToEnd }: BenchReport): string[][] {
  const others = settings.batch > 1 ? ` × ${settings.batch}` : "";
  const rows: [string, Spread][] = [
    [`pp${settings.prompt}${others}`, prefill.tokensPerSecond],
    [`tg${settings.decode}${others}`, decode.tokensPerSecond],
    ...(endToEnd ? [["end to end", endToEnd.tokensPerSecond] as [string, Spread]] : []),
  ];
  return rows.map(([name, spread]) => [name, fixed(spread.median), "tokens/s", range(spread)]);
}

function facts(found: BenchReport): string[][] {
  const { prefill, decode, endToEnd, memory, roofline, ratios, loadMs, process } = found;
  const { p50, p95, p99, jitter } = decode.stepMs;
  const fine = (value: number) => `${value.toFixed(value < 10 ? 3 : 1)} ms`;
  const rows = [
    ["a step", `p50 ${fine(p50)}, p95 ${fine(p95)}, p99 ${fine(p99)}, jitter ${fine(jitter)}`],
    ["decode reads", `${bytes(decode.bytesPerToken)} a token, ${decode.gbPerSecond.toFixed(1)} GB/s`],
    ["prefill multiplies", `${prefill.gmacPerSecond.toFixed(1)} GMAC/s`],
  ];
  if (endToEnd) {
    // Other runs are behind both numbers, so that their difference can be a little below zero.
    const overhead = `${fine(Math.max(0, endToEnd.overheadMsPerToken))} a token outside the engine`;
    rows.push(["end to end", `first token after ${fine(endToEnd.firstTokenMs.median)}, ${overhead}`]);
  }
  const rss = memory.peakRssBytes === null ? "" : `, process ${bytes(memory.peakRssBytes)} at most`;
  rows.push(["memory", `${bytes(memory.wasmBytes)}, grown by ${bytes(memory.grownBytes)} while running${rss}`]);
  rows.push(["load", fine(loadMs)]);
  if (process) rows.push(["decoding uses", uses(process)]);
  if (roofline && ratios) {
    const streams = roofline.read.map(({ streams, gbPerSecond }) => `${gbPerSecond.median.toFixed(1)} (${streams})`);
    rows.push(["this machine reads", `${streams.join(", ")} GB/s (streams a thread), of ${bytes(roofline.bytes)}`]);
    rows.push(["and multiplies", `${roofline.gmacPerSecond.toFixed(1)} GMAC/s`]);
    const { decodeMatricesToRead, prefillMatricesToMultiply } = ratios;
    const inside = (ratio: number | null) => (ratio === null ? "" : `, matrices alone ${percent(ratio)}`);
    rows.push(["decode ÷ read", percent(ratios.decodeToRead) + inside(decodeMatricesToRead)]);
    rows.push(["prefill ÷ multiply", percent(ratios.prefillToMultiply) + inside(prefillMatricesToMultiply)]);
  }
  return rows;
}

function uses(use: NonNullable<BenchReport["process"]>): string {
  const { cpuCores, cpuShare, otherCores, stolenCores, joulesPerToken } = use;
  const faults = `${use.minorFaultsPerToken.toFixed(2)} page faults a token, ${use.majorFaultsPerToken.toFixed(2)} from a disk`;
  const cores = `${cpuCores.toFixed(2)} cores, ${percent(cpuShare)} of its threads`;
  const others = otherCores === null ? "" : `; others ${(otherCores + (stolenCores ?? 0)).toFixed(2)} cores`;
  const energy = joulesPerToken === null ? "energy unknown" : `${joulesPerToken.toPrecision(3)} J a token`;
  return `${cores}${others}; ${faults}; ${energy}`;
}

function profiled({ operation, calls, ms, share, gbPerSecond, gmacPerSecond }: ProfileRow): string[] {
  const shown = (value: number) => (value > 0 ? value.toFixed(1) : "");
  const rates = [shown(gbPerSecond), shown(gmacPerSecond)];
  return [operation, ms.toFixed(2), percent(share), calls > 0 ? calls.toFixed(0) : "", ...rates];
}

export function difference({ rows, notes }: Diff): string {
  const cells = rows.map(({ what, a, b, ratio, noise, slower }) => {
    const shown = [a, b, noise].map((value) => (value > 1e4 ? bytes(value).replace(" B", "") : fixed(value)));
    return [what, shown[0]!, shown[1]!, percent(ratio), shown[2]!, slower ? "worse" : ""];
  });
  const head = ["", "a", "b", "b ÷ a", "noise", ""];
  return [table("lrrrrl", [head, ...cells]), ...notes.map((note) => `  differs: ${note}`)].join("\n");
}

export function loadTestReport(found: LoadTestReport): string {
  const { clients, seconds, answers, wrong, memory, status, beside } = found;
  const { whole, brokenOff, refused } = answers;
  const spread = ({ p50, p95, p99, most }: LoadTestReport["gapMs"]) =>
    `p50 ${ms(p50)}, p95 ${ms(p95)}, p99 ${ms(p99)}, longest ${ms(most)}`;
  const grown = ([before, after]: [number, number]) => `${bytes(before)} then ${bytes(after)}`;
  const rows = [
    [`${plural(clients, "client")}`, `${seconds.toFixed(1)} s, ${fixed(found.tokensPerSecond)} tokens/s in all`],
    ["answers", `${whole} whole, ${brokenOff} broken off, ${refused} refused`],
    ["wrong", wrong === 0 ? "none: each is what it is alone" : String(wrong)],
    ["first piece", spread(found.firstPieceMs)],
    ["of short prompts", spread(found.shortFirstPieceMs)],
    ["between pieces", spread(found.gapMs)],
    [`${beside.promptTokens} tokens`, `beside one answer: first piece after ${ms(beside.firstPieceMs)}`],
    ["the answer's pieces", `${spread(beside.gapMs)}; before that ${spread(beside.aloneGapMs)}`],
    ["prompts", `${percent(found.cachedShare)} of their tokens were computed before`],
    ["wasm memory", grown(memory.wasmBytes)],
    ...(memory.processBytes ? [["process", grown(memory.processBytes)]] : []),
    ["left over", `${status.running + status.waiting + status.paused} requests, ${status.usedTokens} tokens`],
  ];
  return table("ll", rows);
}

export function loadReport({ target, rows, percentiles, knee, machine }: LoadReport): string {
  const times = (found: Record<string, number>) => percentiles.map((p) => fixed(found[`p${p}`] ?? 0)).join(" ");
  const at = percentiles.map((p) => `p${p}`).join(" ");
  const head = [
    "in flight",
    "offered/s",
    "served/s",
    "tokens/s",
    `first ${at}, ms`,
    `gap ${at}`,
    `whole ${at}`,
    "cores",
    "memory",
  ];
  const cells = rows.map((row) => [
    row.size === null ? "any" : String(row.size),
    row.offeredPerSecond === null ? plural(row.users ?? 0, "user") : fixed(row.offeredPerSecond),
    row.servedPerSecond.toFixed(2),
    fixed(row.tokensPerSecond),
    ...[row.firstMs, row.gapMs, row.wholeMs].map(times),
    row.cpuCores?.toFixed(2) ?? "",
    bytesOf(row.memory.after),
  ]);
  const ends = rows.map((row) => {
    const { size, planned, whole, aborted, refused, failed, unfinished, dropped } = row;
    const others = Object.entries({ refused, failed, unfinished, dropped }).map(([name, value]) => `${value} ${name}`);
    const told = Object.entries(row.errors).map(([message, times]) => `\n    ${times} × ${message}`);
    const name = size === null ? "" : `${size} in flight: `;
    return `  ${name}${planned} requests: ${whole} whole, ${aborted} broken off, ${others.join(", ")}${told.join("")}`;
  });
  const clients = rows.flatMap(({ clientCores }) => clientCores ?? []);
  const named = knee === null ? [] : [`  the knee is ${knee} in flight: more add little speed`];
  return [
    `${target}, ${machine.runtime} on ${machine.cpu ?? "an unknown processor"}`,
    "",
    table("rrrrrrrrr", [head, ...cells]),
    ...ends,
    ...(clients.length > 0 ? [`  the load test itself took ${Math.max(...clients).toFixed(2)} cores at most`] : []),
    ...named,
  ].join("\n");
}

/** Of the process, else of the engine; nothing where neither is known. */
const bytesOf = ({ processBytes, wasmBytes }: LoadReport["rows"][number]["memory"]["after"]): string => {
  const known = processBytes ?? wasmBytes;
  return known === null ? "" : bytes(known);
};

/** Other models and earlier reports have neither. */
const packed = ({ ternaryPacking, oneBitSums }: BenchReport["engine"]): string =>
  (ternaryPacking ? `ternary ${ternaryPacking}, ` : "") + (oneBitSums ? `1-bit ${oneBitSums}, ` : "");

const prefetched = (choices: BenchReport["engine"]["weightPrefetch"] = {}): string =>
  Object.entries(choices)
    .map(([kind, choice]) => `${kind} prefetch ${choice}, `)
    .join("");
