/** The benchmark for pages, a file beside `worker.js`. An ordinary page loads nothing of it. */

import type { Outside } from "../api/unstable.ts";
import { pageAddress, runtimeName, spawnEngine } from "../platform/browser.ts";
import { type BenchTask, type Environment, bench as measure } from "./bench.ts";
import type { BenchReport } from "./report.ts";

export { DEFAULTS } from "./bench.ts";
export { diff, parseReport } from "./diff.ts";
export { LOAD_TEST, type LoadTestOptions, type LoadTestReport, loadTest } from "./loadtest.ts";
export type * from "./report.ts";
export { shapes } from "./shapes.ts";
export { synthetic } from "./synthetic.ts";

/** A page cannot find out the processor or the memory of its process. */
const environment: Environment = {
  machine: { runtime: runtimeName(), cpu: null, cores: navigator.hardwareConcurrency || 1 },
  peakRssBytes: () => null,
};

export function bench(task: BenchTask): Promise<BenchReport> {
  const outside: Outside = { spawnEngine, base: pageAddress() };
  return measure(outside, environment, task);
}
