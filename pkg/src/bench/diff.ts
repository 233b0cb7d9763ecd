/** Compares two reports: finds what has become slower by more than both runs vary. */

import { EngineError } from "../types/errors.ts";
import type { BenchReport } from "./report.ts";
import type { Spread } from "./stats.ts";

export interface Difference {
  what: string;
  a: number;
  b: number;
  /** b's median over a's. */
  ratio: number;
  /** How far the medians may differ by chance: half of each report's range. */
  noise: number;
  slower: boolean;
}

export interface Diff {
  rows: Difference[];
  slower: boolean;
  /** What differs besides the code. */
  notes: string[];
}

export function diff(a: BenchReport, b: BenchReport): Diff {
  for (const [option, value] of [
    ["settings", (report: BenchReport) => report.settings],
    ["model", ({ model: { architecture, config, kinds } }: BenchReport) => ({ architecture, config, kinds })],
  ] as const) {
    const [one, other] = [a, b].map((report) => JSON.stringify(value(report)));
    if (one !== other) throw incomparable(`their ${option} differ: ${one} and ${other}`, option);
  }
  if (Math.min(a.settings.repeat, b.settings.repeat) < 2) throw incomparable("one run has no noise", "repeat");
  const rows = [
    row("prefill tokens/s", a.prefill.tokensPerSecond, b.prefill.tokensPerSecond),
    row("decode tokens/s", a.decode.tokensPerSecond, b.decode.tokensPerSecond),
    ...(a.endToEnd && b.endToEnd
      ? [row("end to end tokens/s", a.endToEnd.tokensPerSecond, b.endToEnd.tokensPerSecond)]
      : []),
    exact("bytes a step", a.decode.bytesPerStep, b.decode.bytesPerStep),
  ];
  const notes = (["machine", "engine"] as const).flatMap((part) =>
    Object.keys(a[part]).flatMap((key) => {
      const [one, other] = [a, b].map((report) =>
        JSON.stringify((report[part] as unknown as Record<string, unknown>)[key]),
      );
      return one === other ? [] : [`${key}: ${one} and ${other}`];
    }),
  );
  return { rows, slower: rows.some(({ slower }) => slower), notes };
}

function row(what: string, a: Spread, b: Spread): Difference {
  const noise = (a.most - a.least + b.most - b.least) / 2;
  return { what, a: a.median, b: b.median, ratio: b.median / a.median, noise, slower: a.median - b.median > noise };
}

/** A row for a number that does not depend on the machine's load: less is better, and there is no noise. */
function exact(what: string, a: number, b: number): Difference {
  return { what, a, b, ratio: b / a, noise: 0, slower: b > a };
}

function incomparable(why: string, option: string): EngineError {
  return new EngineError("InvalidArgument", `these reports cannot be compared: ${why}`, { option });
}

/** Parses the file of a report. */
export function parseReport(name: string, text: string): BenchReport {
  try {
    const report = JSON.parse(text) as BenchReport;
    if (report.prefill.tokensPerSecond.runs.length > 0 && report.decode.tokensPerSecond.runs.length > 0) return report;
  } catch {
    // Not JSON: the error below says so.
  }
  throw new EngineError("BadHeader", `${name} is no report of ternlight bench`, { file: name });
}
