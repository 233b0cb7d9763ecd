/** The report of a benchmark as text. */

import type { Diff } from "../bench/diff.ts";
import type { LoadTestReport } from "../bench/loadtest.ts";
import type { BenchReport, ProfileRow, TraceRow, TraceValues } from "../bench/report.ts";
import type { Spread } from "../bench/stats.ts";
import { bytes, count, ms, percent, plural, table } from "./format.ts";

export function report(found: BenchReport): string {
  const { machine, engine, model, settings } = found;
  const parts = [
    `${model.name ?? model.source}: ${model.architecture}, ${count(model.parameters)} parameters, ${bytes(model.weightBytes)} a step`,
    `${engine.flavour}, ${engine.dotProduct}, ${prefetched(engine.weightPrefetch)}${plural(engine.threads, "thread")}, activations ${engine.activations}, KV ${engine.kvCacheType}`,
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
  }
  return parts.join("\n");
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

function facts({ prefill, decode, endToEnd, memory, roofline, ratios, loadMs }: BenchReport): string[][] {
  const { p50, p95, p99, jitter } = decode.stepMs;
  const fine = (value: number) => `${value.toFixed(value < 10 ? 3 : 1)} ms`;
  const rows = [
    ["a step", `p50 ${fine(p50)}, p95 ${fine(p95)}, p99 ${fine(p99)}, jitter ${fine(jitter)}`],
    ["decode reads", `${bytes(decode.bytesPerToken)} a token, ${decode.gbPerSecond.toFixed(1)} GB/s`],
    ["prefill multiplies", `${prefill.gmacPerSecond.toFixed(1)} GMAC/s`],
  ];
  if (endToEnd) {
    const overhead = `${fine(endToEnd.overheadMsPerToken)} a token outside the engine`;
    rows.push(["end to end", `first token after ${fine(endToEnd.firstTokenMs.median)}, ${overhead}`]);
  }
  const rss = memory.peakRssBytes === null ? "" : `, process ${bytes(memory.peakRssBytes)} at most`;
  rows.push(["memory", `${bytes(memory.wasmBytes)}, grown by ${bytes(memory.grownBytes)} while running${rss}`]);
  rows.push(["load", fine(loadMs)]);
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

/** Earlier reports have none. */
const prefetched = (choices: BenchReport["engine"]["weightPrefetch"] = {}): string =>
  Object.entries(choices)
    .map(([kind, choice]) => `${kind} prefetch ${choice}, `)
    .join("");
