export { type CheckOptions, check } from "./check.ts";
export { type Collected, type CollectOptions, collect } from "./collect.ts";
export { attached, cancel, drain, type JobStatus, retry, status } from "./control.ts";
export type { WorkCounts, WorkEvent } from "./counts.ts";
export { type Counted, type Metrics, openMetrics } from "./metrics.ts";
export type { Attached, Facts, JobInfo, JobSettings, Place } from "./store.ts";
export { type SubmitOptions, submit } from "./submit.ts";
export { type Work, type WorkOptions, work } from "./work.ts";
