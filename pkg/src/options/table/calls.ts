/** Options of the smaller calls. */

import { type Group, MAX_TOKENS } from "../option.ts";

export const rendering = {
  addGenerationPrompt: {
    kind: "boolean",
    to: "prompt",
    default: true,
    help: "Ends with what begins the model's turn.",
  },
} as const satisfies Group;

export const adapter = {
  name: {
    kind: "text",
    to: "host",
    otherwise: "the name of its file without the ending, or of its folder",
    help: "The name by which requests refer to the adapter.",
  },
} as const satisfies Group;

export const detokenizing = {
  special: { kind: "boolean", to: "caller", default: true, help: "Keeps special tokens in the text." },
} as const satisfies Group;

export const logits = {
  all: {
    kind: "boolean",
    to: "caller",
    default: false,
    flag: {},
    help: "Gives one row for every id instead of one for the last id alone.",
  },
} as const satisfies Group;

export const scoring = {
  top: {
    kind: { integer: [0, 100] },
    to: "caller",
    default: 0,
    unit: "tokens",
    help: "How many of the likeliest tokens are reported in each place.",
  },
} as const satisfies Group;

export const embedding = {
  pooling: {
    kind: { values: ["mean", "last"] },
    to: "caller",
    otherwise: "the one that the model's GGUF names, else the mean",
    help: "How the states of a text's tokens become one: their mean, or the last one.",
  },
  normalize: { kind: "boolean", to: "caller", default: true, help: "Scales embeddings to length 1." },
} as const satisfies Group;

export const wellness = {
  full: {
    kind: "boolean",
    to: "caller",
    default: false,
    help: "Compares all weights now, in place of the tiles that their turn has come to.",
  },
  damage: {
    kind: "damage",
    to: "caller",
    otherwise: "none",
    help: "Damages the model in memory, to see an alarm rise: codes in so many tiles, or a scale that is NaN.",
  },
  watch: {
    kind: "boolean",
    to: "caller",
    otherwise: "as it is",
    help: "Lets watching rest (false) or go on (true).",
  },
} as const satisfies Group;

export const metering = {
  format: {
    kind: { values: ["prometheus", "openmetrics"] },
    to: "caller",
    default: "prometheus",
    help: "How the text is written: Prometheus' format, or OpenMetrics 1.0.",
  },
  dialect: {
    kind: { values: ["ternlight", "llama", "vllm"] },
    to: "caller",
    default: "ternlight",
    help: "Whose names the metrics have: ternlight's own, llama-server's or vLLM's.",
  },
} as const satisfies Group;

export const perplexity = {
  window: {
    kind: { integer: [2, MAX_TOKENS] },
    to: "caller",
    default: 512,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens of each window of the text.",
  },
} as const satisfies Group;

export const caching = {
  directory: {
    kind: "text",
    to: "caller",
    otherwise: "where loads keep files by themselves",
    help: "The directory to look at, as in the load option cache.",
  },
} as const satisfies Group;
