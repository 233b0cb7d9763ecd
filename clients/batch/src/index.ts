export { type Collected, type CollectOptions, collect } from "./collect.ts";
export { cancel, drain, type JobStatus, retry, status } from "./control.ts";
export type { JobInfo } from "./folder.ts";
export { type SubmitOptions, submit } from "./submit.ts";
export { type Work, type WorkEvent, type WorkOptions, work } from "./work.ts";
