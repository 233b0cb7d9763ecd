/** Options and results of the tools. */

export type { Calibrated, CalibratedMatrix, CalibrateOptions } from "./calibrate.ts";
export type { CheckOptions, Checkup } from "./check.ts";
export type { Compared, ComparedRow, CompareOptions } from "./compared.ts";
export type { TokenOptions } from "./for_slice.ts";
export type { Finding, Rule, Unchecked } from "./lint/finding.ts";
export type { QualityOptions } from "./measure.ts";
export type { NewFile } from "./new_gguf.ts";
export type { PruneBy, Pruned, PruneOptions, PrunePoint } from "./prune.ts";
export type { MeasuredReport, MeasuredRow, QualityReport, QualityRow, Setting } from "./report.ts";
export type { Sliced, SliceOptions } from "./slice.ts";
export type { Accuracy, ScoredChoice, ScoredTask, Task, TaskOptions, TaskReport } from "./tasks.ts";
