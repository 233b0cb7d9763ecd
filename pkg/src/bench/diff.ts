/** Compares two reports, or two sweeps of them: finds what has become worse by more than both runs vary. */

import { EngineError } from "../types/errors.ts";
import type { BenchReport, SweepReport } from "./report.ts";
import type { Spread } from "./stats.ts";

export interface Difference {
  what: string;
  a: number;
  b: number;
  /** b's median over a's. */
  ratio: number;
  /** How far the medians may differ by chance: half of each report's range, or a share of a where there is one number alone. */
  noise: number;
  /** It is worse by more than that. */
  slower: boolean;
}

export interface Diff {
  rows: Difference[];
  slower: boolean;
  /** What differs besides the code, and what only one report holds. */
  notes: string[];
}

/** What may differ by chance in a number that was measured once. */
const LOAD_NOISE = 0.25;
const MEMORY_NOISE = 0.05;
/** Of memory that is reserved once: a build's own data may differ. */
const RESERVED_NOISE = 0.01;

export function diff(a: BenchReport, b: BenchReport): Diff {
  for (const [option, value] of [
    ["settings", (report: BenchReport) => report.settings],
    ["model", ({ model: { architecture, config, kinds } }: BenchReport) => ({ architecture, config, kinds })],
  ] as const) {
    const [one, other] = [a, b].map((report) => JSON.stringify(value(report)));
    if (one !== other) throw incomparable(`their ${option} differ: ${one} and ${other}`, option);
  }
  if (Math.min(a.settings.repeat, b.settings.repeat) < 2) throw incomparable("one run has no noise", "repeat");
  const found = compared.map((compare) => compare(a, b));
  const rows = found.filter((row) => row !== null && typeof row === "object");
  const absent = found.filter((row) => typeof row === "string").map((what) => `${what}: one report has none`);
  const notes = (["machine", "engine"] as const).flatMap((part) =>
    Object.keys(a[part]).flatMap((key) => {
      const [one, other] = [a, b].map((report) =>
        JSON.stringify((report[part] as unknown as Record<string, unknown>)[key]),
      );
      return one === other ? [] : [`${key}: ${one} and ${other}`];
    }),
  );
  return { rows, slower: rows.some(({ slower }) => slower), notes: [...notes, ...absent] };
}

/** The same for reports of several sizes, size by size: each row names its size. Reports of one size alone are compared as they are. */
export function diffAll(a: readonly BenchReport[], b: readonly BenchReport[]): Diff {
  if (a.length === 1 && b.length === 1) return diff(a[0]!, b[0]!);
  const [one, other] = [a, b].map((reports) => new Map(reports.map((report) => [sizeOf(report), report])));
  const sizes = [...new Set([...one!.keys(), ...other!.keys()])];
  const shared = sizes.filter((size) => one!.has(size) && other!.has(size));
  if (shared.length === 0) {
    const [first, second] = [one!, other!].map((reports) => [...reports.keys()].join("; "));
    throw incomparable(`they share no size: ${first} and ${second}`, "batch");
  }
  const found = shared.map((size) => ({ size, ...diff(one!.get(size)!, other!.get(size)!) }));
  const rows = found.flatMap(({ size, rows }) => rows.map((row) => ({ ...row, what: `${size}: ${row.what}` })));
  const alone = sizes.filter((size) => !shared.includes(size)).map((size) => `${size}: one report has none`);
  // What differs between the machines does so for every size.
  const notes = found.flatMap(({ size, notes }) =>
    notes.map((note) => (found.every((each) => each.notes.includes(note)) ? note : `${size}: ${note}`)),
  );
  return { rows, slower: rows.some(({ slower }) => slower), notes: [...new Set(notes), ...alone] };
}

const sizeOf = ({ settings: { batch, ctx } }: BenchReport): string => `batch ${batch}, past ${ctx}`;

/** A row; its name where one report alone has the number, and null where neither has it. */
type Compare = (a: BenchReport, b: BenchReport) => Difference | string | null;
/** Reports of earlier versions hold less. */
type Get<T> = (report: BenchReport) => T | null | undefined;

const both =
  <T>(what: string, get: Get<T>, compare: (a: T, b: T) => Difference): Compare =>
  (a, b) => {
    const [one, other] = [get(a), get(b)];
    if (one == null && other == null) return null;
    return one == null || other == null ? what : compare(one, other);
  };

/** Several runs, of which more is better, or less. */
const runs = (what: string, better: "more" | "less", get: Get<Spread>): Compare =>
  both(what, get, (a, b) => {
    const noise = (a.most - a.least + b.most - b.least) / 2;
    return row(what, a.median, b.median, noise, better);
  });

/** One number, of which less is better and which differs by this share from run to run. */
const once = (what: string, share: number, get: Get<number>): Compare =>
  both(what, get, (a, b) => row(what, a, b, share * a, "less"));

const compared: readonly Compare[] = [
  runs("prefill tokens/s", "more", ({ prefill }) => prefill.tokensPerSecond),
  runs("decode tokens/s", "more", ({ decode }) => decode.tokensPerSecond),
  runs("end to end tokens/s", "more", ({ endToEnd }) => endToEnd?.tokensPerSecond),
  runs("first token, ms", "less", ({ endToEnd }) => endToEnd?.firstTokenMs),
  runs("a step, p95, ms", "less", ({ decode }) => decode.tailMs?.p95),
  runs("a step, p99, ms", "less", ({ decode }) => decode.tailMs?.p99),
  once("bytes a step", 0, ({ decode }) => decode.bytesPerStep),
  once("wasm memory, bytes", RESERVED_NOISE, ({ memory }) => memory.wasmBytes),
  once("process, bytes at most", MEMORY_NOISE, ({ memory }) => memory.peakRssBytes),
  once("load, ms", LOAD_NOISE, ({ loadMs }) => loadMs),
];

function row(what: string, a: number, b: number, noise: number, better: "more" | "less"): Difference {
  return { what, a, b, ratio: a === 0 ? 1 : b / a, noise, slower: (better === "more" ? a - b : b - a) > noise };
}

function incomparable(why: string, option: string): EngineError {
  return new EngineError("InvalidArgument", `these reports cannot be compared: ${why}`, { option });
}

/** Parses the file of a report. */
export function parseReport(file: string, text: string): BenchReport {
  const reports = parseReports(file, text);
  if (reports.length === 1) return reports[0]!;
  const [expected, found] = ["one batch and one past", "a sweep"];
  const reason = `${file}: expected a report of ${expected}, got ${found}: take one of its reports, or measure with one --batch and one --ctx`;
  throw new EngineError("InvalidArgument", reason, { file, expected, found });
}

/** Parses the file of a report or of a sweep, which holds several. */
export function parseReports(file: string, text: string): readonly BenchReport[] {
  try {
    const found = JSON.parse(text) as BenchReport | SweepReport;
    const reports = "sweep" in found ? found.reports : [found];
    const measured = ({ prefill, decode }: BenchReport) =>
      prefill.tokensPerSecond.runs.length > 0 && decode.tokensPerSecond.runs.length > 0;
    if (reports.length > 0 && reports.every(measured)) return reports;
  } catch {
    // Not JSON, or not of this shape: the error below says so.
  }
  throw new EngineError("BadHeader", `${file} is no report of ternlight bench`, { file });
}
