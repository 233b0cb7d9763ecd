/** Flags of the tools that make a model smaller and say what it cost. */

import { type Group, MAX_TOKENS } from "../option.ts";

const output = {
  kind: "text",
  to: "command",
  flag: { value: "FILE" },
  help: "The file to write.",
} as const;
const force = {
  kind: "boolean",
  to: "command",
  default: false,
  flag: {},
  help: "Replace the file if there is one.",
} as const;

export const checkFlags = {
  check: {
    kind: "boolean",
    to: "command",
    flag: {},
    help: "Look for what makes converted files write nonsense; exits 1 where something is left.",
  },
  fix: {
    kind: "boolean",
    to: "command",
    flag: {},
    help: "With --check: write a new file with what can be mended.",
  },
  output: {
    ...output,
    otherwise: "MODEL.fixed.gguf",
    help: "With --fix: the file to write.",
  },
  force,
} as const satisfies Group;

export const qualityFlags = {
  kv: {
    kind: "texts",
    to: "command",
    otherwise: "f32,f16,q8,q4 where no list is given at all",
    flag: { value: "C[,C…]", read: "list" },
    help: "How keys and values are stored, each measured: auto, f32, f16, fp8, q8, q4, q2.",
  },
  activations: {
    kind: "texts",
    to: "command",
    otherwise: "auto",
    flag: { value: "A[,A…]", read: "list" },
    help: "How activations are rounded, each measured: auto, int8, int14, float, or a map in a .json file.",
  },
  head: {
    kind: "texts",
    to: "command",
    otherwise: "stored",
    flag: { value: "T[,T…]", read: "list" },
    help: "What embedding and head are rounded to, each measured: stored, q8_0, q6_k, q4_0.",
  },
  against: {
    kind: "text",
    to: "command",
    otherwise: "the model itself, with keys and values in f32",
    flag: { value: "OTHER" },
    help: "The model to compare with.",
  },
  tasks: {
    kind: "text",
    to: "command",
    flag: { value: "FILE.jsonl" },
    help: "Multiple-choice lines of query, choices and gold, which every setting answers.",
  },
  tokens: {
    kind: { integer: [2, MAX_TOKENS] },
    to: "command",
    otherwise: "all",
    unit: "tokens",
    flag: { value: "N" },
    help: "The most tokens of the text.",
  },
  csv: { kind: "text", to: "command", flag: { value: "FILE" }, help: "Write a line for each setting to a file." },
  plot: {
    kind: "text",
    to: "command",
    flag: { value: "FILE.svg" },
    help: "Write a picture of perplexity over memory.",
  },
} as const satisfies Group;

export const sliceFlags = {
  keep: {
    kind: { integer: [1, MAX_TOKENS] },
    to: "command",
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens of the new vocabulary, special tokens and bytes among them.",
  },
  text: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "The text whose tokens stay first; its last tenth is held out. With --tokens it chooses nothing, and only says what the slice costs.",
  },
  tokens: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Tokens to keep: a JSON list of ids or of texts as the vocabulary spells them, or an id a line.",
  },
  output,
  force,
} as const satisfies Group;

export const calibrateFlags = {
  dataset: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Texts to measure with, one a line of a .jsonl as { text } or as a JSON text; any other file is one text.",
  },
  calibrationSamples: {
    kind: { integer: [1, MAX_TOKENS] },
    to: "command",
    default: 512,
    unit: "pieces",
    flag: { value: "N" },
    help: "The most pieces of 64 tokens that entropies are measured on.",
  },
  entropyThreshold: {
    kind: { number: [0, 8] },
    to: "command",
    default: 2.1,
    unit: "bits",
    flag: { value: "B" },
    help: "Bits of an input's int8 codes up to which it becomes int4; up to half of it, int2; everything above becomes int8.",
  },
  budget: {
    kind: { number: [0, 1000] },
    to: "command",
    unit: "%",
    otherwise: "none: by entropy",
    flag: { value: "PPL%", read: "percent" },
    help: "Choose by the loss that each matrix causes instead, as long as the perplexity rises by no more.",
  },
  calibrationTokens: {
    kind: { integer: [16, MAX_TOKENS] },
    to: "command",
    default: 2048,
    unit: "tokens",
    flag: { value: "N" },
    help: "The most held-out tokens to choose by, and as many for the report.",
  },
  outputDir: {
    kind: "text",
    to: "command",
    flag: { value: "D" },
    help: "The folder for activations.json, the map.",
  },
  output: { ...output, otherwise: "none", help: "Write a GGUF with the map in its header as well." },
  force,
} as const satisfies Group;

export const pruneFlags = {
  calibrationData: {
    kind: "text",
    to: "command",
    flag: { value: "F.jsonl" },
    help: "Texts to choose by, one a line as { text } or as a JSON text; any other file is one text.",
  },
  targetLayers: {
    kind: { integer: [1, 1024] },
    to: "command",
    unit: "layers",
    flag: { value: "N" },
    help: "Layers that stay.",
  },
  by: {
    kind: { values: ["variance", "influence", "search"] },
    to: "command",
    default: "influence",
    flag: { value: "B" },
    help: "What is chosen by: what a layer adds varies least, its removal turns the hidden state least, or greedy search.",
  },
  calibrationTokens: {
    kind: { integer: [16, MAX_TOKENS] },
    to: "command",
    default: 2048,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens to choose by, and as many held-out ones for the curve.",
  },
  output,
  plot: { kind: "text", to: "command", flag: { value: "FILE.svg" }, help: "Write a picture of the curve." },
  force,
} as const satisfies Group;
