/** The benchmark for pages, beside `worker.js`. Nothing of it is in what an ordinary page loads. */

import type { Outside } from "../model.ts";
import { pageAddress, spawnEngine } from "../platform/browser.ts";
import { type BenchTask, type Environment, bench as measure } from "./bench.ts";
import type { BenchReport } from "./report.ts";

export { DEFAULTS } from "./bench.ts";
export { CROWD, type CrowdOptions, type CrowdReport, crowd } from "./crowd.ts";
export { diff, parseReport } from "./diff.ts";
export type * from "./report.ts";
export { shapes } from "./shapes.ts";
export { synthetic } from "./synthetic.ts";

/** A page learns nothing of the processor, nor of the memory that its process takes. */
const environment: Environment = {
  machine: { runtime: browser(navigator.userAgent), cpu: null, cores: navigator.hardwareConcurrency || 1 },
  peakRssBytes: () => null,
};

/** `Chrome 156`, `Firefox 140`, `Safari 26.1` */
function browser(agent: string): string {
  const found = /(Firefox|Edg|Chrome)\/(\d+)/.exec(agent) ?? /(?:Version)\/([\d.]+).*(Safari)/.exec(agent);
  return found ? [found[1], found[2]].sort().reverse().join(" ") : agent;
}

export function bench(task: BenchTask): Promise<BenchReport> {
  const outside: Outside = { spawnEngine, base: pageAddress() };
  return measure(outside, environment, task);
}
