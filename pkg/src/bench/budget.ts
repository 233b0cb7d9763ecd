/** Budgets: what a report must reach, as ratios to what the machine does at best rather than as times. */

import { checkAll } from "../options/check.ts";
import { optionsOf } from "../options/options.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";
import { type BenchOptions, checkBench } from "./bench.ts";
import type { BenchReport } from "./report.ts";
import type { SyntheticOptions } from "./shapes.ts";

export interface Budget extends Partial<SyntheticOptions> {
  /** A file, a folder or a URL, or `ternlight-demo`; absent with `shape`. */
  model?: string;
  options?: BenchOptions;
  load?: LoadOptions;
  limits: Limit[];
}

export interface Limit {
  /** A number of the report by its path, such as `ratios.decodeToRead`; several runs stand for their median. */
  what: string;
  /** Another one that it is divided by. */
  per?: string;
  least?: number;
  most?: number;
}

export interface Checked extends Limit {
  found: number;
  met: boolean;
}

const KEYS = ["model", "shape", "type", "embedding", "seed", "options", "load", "limits"];
const LIMIT_KEYS = ["what", "per", "least", "most"];

/** Parses the file of a budget. */
export function parseBudget(file: string, text: string): Budget {
  let budget: Budget;
  try {
    budget = JSON.parse(text);
  } catch (cause) {
    throw bad(file, "JSON", (cause as Error).message);
  }
  const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
  if (!isObject(budget) || !Array.isArray(budget.limits) || budget.limits.length === 0) {
    throw bad(file, "an object with a list of limits", text.slice(0, 80));
  }
  for (const key of Object.keys(budget)) if (!KEYS.includes(key)) throw bad(file, KEYS.join(", "), key);
  for (const limit of budget.limits) {
    const { what, per, least, most } = (isObject(limit) ? limit : {}) as Record<string, unknown>;
    const fits =
      typeof what === "string" &&
      (per === undefined || typeof per === "string") &&
      [least, most].every((bound) => bound === undefined || typeof bound === "number") &&
      [least, most].some((bound) => bound !== undefined) &&
      Object.keys(limit).every((key) => LIMIT_KEYS.includes(key));
    if (!fits) throw bad(file, "limits like { what, per, least, most } with a bound", JSON.stringify(limit));
  }
  checkBench(budget.options ?? {});
  checkAll("load", optionsOf("load"), budget.load);
  return budget;
}

function bad(file: string, expected: string, found: string): EngineError {
  return new EngineError("InvalidArgument", `the budget ${file} must be ${expected}, not ${found}`, {
    file,
    expected,
    found,
  });
}

/**
 * What stands in a budget beside the report's own numbers: the time in which the calibration loop, which the report's roofline is,
 * multiplies or reads 10⁹ times. A time divided by it is about the same on a fast and on a slow machine.
 */
const calibration = ({ roofline }: BenchReport) => ({
  multiplyMs: roofline && 1000 / roofline.gmacPerSecond,
  readMs: roofline && 1000 / roofline.gbPerSecond,
});

export function check(report: BenchReport, limits: readonly Limit[]): Checked[] {
  const all = { ...report, calibration: calibration(report) };
  return limits.map((limit) => {
    const { what, per, least = -Infinity, most = Infinity } = limit;
    const found = numberAt(all, what) / (per === undefined ? 1 : divisorAt(all, per));
    return { ...limit, found, met: least <= found && found <= most };
  });
}

function divisorAt(report: object, per: string): number {
  const number = numberAt(report, per);
  if (number !== 0) return number;
  const [expected, found] = ["a number other than 0", "0"];
  const reason = `a limit is per ${per}: expected ${expected}, got ${found}`;
  throw new EngineError("InvalidArgument", reason, { option: per, expected, found });
}

function numberAt(report: object, what: string): number {
  let value: unknown = report;
  let reached = "";
  for (const key of what.split(".")) {
    const known = typeof value === "object" && value !== null ? Object.keys(value) : [];
    if (!known.includes(key)) throw absent(what, reached, known);
    value = (value as Record<string, unknown>)[key];
    reached += `${reached && "."}${key}`;
  }
  const { median } = (value ?? {}) as { median?: unknown };
  const number = median ?? value;
  if (typeof number === "number" && Number.isFinite(number)) return number;
  throw absent(what, reached, typeof number === "object" && number !== null ? Object.keys(number) : []);
}

function absent(what: string, reached: string, known: readonly string[]): EngineError {
  const expected = known.length > 0 ? known.join(", ") : "a number";
  return new EngineError("InvalidArgument", `a report has no number ${what}: ${reached || "it"} holds ${expected}`, {
    option: what,
    expected,
  });
}
