/** Flags of the commands that advise on settings and look after a model. */

import { type Group, MAX_TOKENS } from "../option.ts";

/** What `recommend` of `ternlight/doctor` takes. */
export const advising = {
  users: {
    kind: { integer: [1, 4096] },
    to: "caller",
    default: 1,
    unit: "user",
    flag: { value: "N" },
    help: "Users who ask at once, each again when the answer is there.",
  },
  promptTokens: {
    kind: { integer: [1, 1048576] },
    to: "caller",
    default: 128,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens of a prompt.",
  },
  answerTokens: {
    kind: { integer: [1, 1048576] },
    to: "caller",
    default: 64,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens of an answer.",
  },
  p95Ms: {
    kind: { number: [0.001, 86_400_000] },
    to: "caller",
    otherwise: "none",
    unit: "milliseconds",
    flag: { name: "p95", value: "MS" },
    help: "The time within which 95 of 100 answers are to be whole.",
  },
  memory: {
    kind: { integer: [1, 2 ** 53 - 1] },
    to: "caller",
    otherwise: "what the runtime has free, at most 8 WebAssembly memories of 4 GiB",
    unit: "bytes",
    flag: { value: "SIZE", read: "bytes" },
    help: "Memory that the model may take.",
  },
  load: {
    kind: "object",
    to: "caller",
    otherwise: "none",
    help: "Options of load that are settled: they are kept, and the others are recommended beside them.",
  },
  device: {
    kind: "object",
    to: "caller",
    otherwise: "this machine, by a probe with the model",
    help: "Another machine's report; the model is not loaded then.",
  },
  signal: {
    kind: "signal",
    to: "caller",
    otherwise: "none",
    help: "Aborts the probe, which rejects with the signal's reason.",
  },
} as const satisfies Group;

export const promptFlags = {
  prompts: {
    kind: "text",
    to: "command",
    flag: { value: "IN.jsonl" },
    help: "Prompts, one a line: a text, or an object with prompt, ids or messages and options of the answer; answers come in their order.",
  },
  out: {
    kind: "text",
    to: "command",
    otherwise: "standard output",
    flag: { value: "OUT.jsonl" },
    help: "Where answers go, one a line; what is there already is not computed again.",
  },
} as const satisfies Group;

export const adviceFlags = {
  deviceFile: {
    kind: "text",
    to: "command",
    otherwise: "this machine",
    flag: { name: "device", value: "FILE.json" },
    help: "A report that device-report --json has printed on the machine to advise on.",
  },
} as const satisfies Group;

export const watchFlags = {
  healthThresholds: {
    kind: "text",
    to: "command",
    otherwise: "the usual ones",
    flag: { value: "FILE.json" },
    help: "Watches health with these thresholds of signals, as health --calibrate writes them.",
  },
  healthShare: {
    kind: { number: [0, 1] },
    to: "command",
    default: 0.004,
    flag: { value: "X" },
    help: "Watches health with at most this share of a core; with 1 every step is looked at.",
  },
} as const satisfies Group;

export const speedFlags = {
  speed: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Estimates how fast each model that fits writes here, from small models of its storage types that run for some seconds.",
  },
} as const satisfies Group;

export const healthFlags = {
  thresholds: {
    kind: "text",
    to: "command",
    otherwise: "the usual ones",
    flag: { value: "FILE.json" },
    help: "Thresholds of signals, as --calibrate writes them.",
  },
  calibrate: {
    kind: "text",
    to: "command",
    flag: { value: "FILE.json" },
    help: "Writes thresholds for this model, which is taken to be well.",
  },
  flipCodes: {
    kind: { integer: [1, 1_000_000] },
    to: "command",
    flag: { value: "N" },
    help: "Changes one code in each of so many tiles first, to see the alarm rise; the file stays as it is.",
  },
  maxTokens: {
    kind: { integer: [1, MAX_TOKENS] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { short: "n", value: "N" },
    help: "The most tokens of each of the four answers that are looked at.",
  },
} as const satisfies Group;
