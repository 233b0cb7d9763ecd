/** Flags of the commands that advise on settings and look after a model. */

import { type Group, MOST_TOKENS } from "../option.ts";

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

export const fitFlags = {
  memory: {
    kind: { integer: [1, 2 ** 53 - 1] },
    to: "command",
    otherwise: "what the runtime has free, at most WebAssembly's 4 GiB",
    unit: "bytes",
    flag: { value: "SIZE", read: "bytes" },
    help: "Memory that the model may take.",
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
    kind: { integer: [1, MOST_TOKENS] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { short: "n", value: "N" },
    help: "The most tokens of each of the four answers that are looked at.",
  },
} as const satisfies Group;
