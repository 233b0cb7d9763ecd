/** Options of batches on one machine, which are flags of commands alone. */

import { type Group, MAX_TOKENS } from "../option.ts";

export const batchFlags = {
  batchModel: {
    kind: "text",
    to: "command",
    otherwise: "required",
    flag: { name: "model", value: "[NAME=]MODEL" },
    help: "The model that answers every line, whatever the line names.",
  },
  out: {
    kind: "text",
    to: "command",
    otherwise: "required",
    flag: { value: "OUT.jsonl" },
    help: "The file of answers, in the order of the input; it appears when it is whole.",
  },
  errors: {
    kind: "text",
    to: "command",
    otherwise: "OUT.errors.jsonl, where there are errors",
    flag: { value: "ERR.jsonl" },
    help: "The file of lines that have no answer, with the reason of each.",
  },
  workers: {
    kind: { integer: [1, 256] },
    to: "command",
    default: 1,
    unit: "workers",
    flag: { value: "N" },
    help: "Engines side by side, which share the cores.",
  },
  chunk: {
    kind: { integer: [1, 4096] },
    to: "command",
    default: 32,
    unit: "lines",
    flag: { value: "N" },
    help: "Lines that each worker has under way: as many are computed again after a crash, at most.",
  },
  resume: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Go on with a run that ended early; without one, begin, and where the file of answers is whole, do nothing.",
  },
  force: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Replace the files of answers and of errors if there are some.",
  },
  template: {
    kind: "text",
    to: "command",
    otherwise: "none",
    flag: { value: "TEXT|FILE" },
    help: "Makes a request of each row of CSV, or of fields of JSON: a text with {{column}} in it, or the JSON of a request.",
  },
  defaultMaxTokens: {
    kind: { integer: [-1, MAX_TOKENS] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { value: "N" },
    help: "The most tokens of an answer whose line has no limit; -1 is none.",
  },
} as const satisfies Group;

/** Where a queue and its results are. */
export const queuePlace = {
  queue: {
    kind: "text",
    to: "command",
    flag: { value: "URL" },
    help: "A queue in Redis or PostgreSQL, redis://…, rediss://… or postgres://…, for workers on many machines.",
  },
  folder: {
    kind: "text",
    to: "command",
    otherwise: "the database of a queue in PostgreSQL; required with Redis",
    flag: { value: "DIR" },
    help: "A folder that all machines see, for the lines of jobs and their answers.",
  },
} as const satisfies Group;

/** How a job goes into a queue. */
export const queueFlags = {
  priority: {
    kind: { integer: [1, 2 ** 21] },
    to: "command",
    otherwise: "before all with one, in the order in which jobs came",
    flag: { value: "N" },
    help: "Jobs with a lower number go first.",
  },
  detach: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Put the job into the queue and end; the same call without it collects the answers.",
  },
  attached: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Load no model: the job is for the workers of the name in --model that are attached, which must be of one kind.",
  },
} as const satisfies Group;

export const workerFlags = {
  workerModels: {
    kind: "texts",
    to: "command",
    otherwise: "required",
    flag: { name: "model", value: "[NAME=]MODEL", many: true },
    help: "A model whose jobs are worked on; it stays loaded.",
  },
  chunksAtOnce: {
    kind: { integer: [1, 256] },
    to: "command",
    default: 2,
    unit: "chunks",
    flag: { name: "chunks", value: "N" },
    help: "Chunks under way at once: with two, the engine's batch stays full where one ends.",
  },
  lease: {
    kind: { integer: [1, 86_400] },
    to: "command",
    default: 30,
    unit: "seconds",
    flag: { value: "S" },
    help: "A worker that gives no sign of life for so long loses its chunks to others.",
  },
  workerMaxTokens: {
    kind: { integer: [-1, MAX_TOKENS] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { name: "default-max-tokens", value: "N" },
    help: "As in the command batch: jobs that were given with another number are not of this worker.",
  },
} as const satisfies Group;

export const drainFlags = {
  off: { kind: "boolean", to: "command", default: false, flag: {}, help: "Let workers take chunks again." },
} as const satisfies Group;

export const metricsFlags = {
  metricsListen: {
    kind: "text",
    to: "command",
    otherwise: "no metrics are served",
    flag: { value: "[HOST:]PORT" },
    help: "Serve metrics at /metrics to Prometheus: of the queue, with status of jobs, with worker of this worker. The host is 127.0.0.1 unless it is given.",
  },
} as const satisfies Group;

export const statusFlags = {
  metrics: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Print the queue's metrics once, in Prometheus' text format.",
  },
} as const satisfies Group;

export const concurrencyFlags = {
  recommend: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Probe this machine with the model for a second, and compute as many lines at once as recommend finds fastest in its memory.",
  },
} as const satisfies Group;
