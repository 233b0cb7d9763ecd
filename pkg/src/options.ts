/** Options are checked where they enter: an unknown name or a wrong type is an error that says which. */

import { checkFormat } from "./constrain/format.ts";
import { EngineError } from "./errors.ts";
import type { GenerateOptions, Sampler, SamplingOptions } from "./types.ts";

export type Check = (value: unknown) => string | null;

const isSignal: Check = (value) => (value instanceof AbortSignal ? null : "an AbortSignal");
const isFunction: Check = (value) => (typeof value === "function" ? null : "a function");
export const isBoolean: Check = (value) => (typeof value === "boolean" ? null : "true or false");
const isObject: Check = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? null : "an object";
const isList: Check = (value) => (Array.isArray(value) ? null : "a list");

const isHash = (value: unknown) =>
  typeof value === "string" && /^([0-9a-f]{64}|sha256-[A-Za-z0-9+/]{43}=)$/i.test(value);

const oneOf = (...values: string[]): Check => {
  const expected = values.map((value) => `"${value}"`).join(", ");
  return (value) => (values.includes(value as string) ? null : expected);
};

const isToolChoice: Check = (value) =>
  ["auto", "none", "required"].includes(value as string) ||
  typeof (value as { name?: unknown } | null)?.name === "string"
    ? null
    : '"auto", "none", "required" or { name }';

export const integer = (least: number, most: number): Check => {
  const inRange = (value: number) => Number.isInteger(value) && value >= least && value <= most;
  return (value) => (typeof value === "number" && inRange(value) ? null : `an integer from ${least} to ${most}`);
};

const number = (least: number, most: number): Check => {
  return (value) =>
    typeof value === "number" && value >= least && value <= most ? null : `a number from ${least} to ${most}`;
};

const isStop: Check = (value) =>
  typeof value === "string" || (Array.isArray(value) && value.every((text) => typeof text === "string"))
    ? null
    : "a string or a list of strings";

const MOST_TOKENS = 2 ** 31 - 1;

const share = number(0, 1);
const count = integer(0, MOST_TOKENS);

const listOf = (one: (value: unknown) => boolean, expected: string): Check => {
  return (value) => (Array.isArray(value) && value.every(one) ? null : expected);
};
const isText = (value: unknown) => typeof value === "string" && value !== "";
const isIds = (value: unknown) =>
  Array.isArray(value) && value.length > 0 && value.every((id) => Number.isInteger(id) && id >= 0 && id <= MOST_TOKENS);

const isBias: Check = (value) => {
  const fine = ([id, bias]: [string, unknown]) => /^\d{1,9}$/.test(id) && typeof bias === "number" && bias <= 1e30;
  return isObject(value) === null && Object.entries(value as object).every(fine)
    ? null
    : "an object of token ids with numbers or -Infinity";
};

/** The links of the sampler chain, in their order. */
export const samplers: readonly Sampler[] = [
  "penalties",
  "dry",
  "topNSigma",
  "topK",
  "typicalP",
  "topP",
  "minP",
  "xtc",
  "temperature",
];

const sampling = {
  temperature: number(0, 100),
  dynamicTemperature: number(0, 100),
  dynamicExponent: number(0.01, 100),
  topK: count,
  adaptiveTopK: isBoolean,
  topP: share,
  minP: share,
  typicalP: share,
  topNSigma: number(0, 1000),
  xtcProbability: share,
  xtcThreshold: share,
  repetitionPenalty: number(0.01, 100),
  frequencyPenalty: number(-100, 100),
  presencePenalty: number(-100, 100),
  penaltyLastN: count,
  dryMultiplier: number(0, 100),
  dryBase: number(1, 100),
  dryAllowedLength: count,
  dryLastN: count,
  dryBreakers: listOf(isText, "a list of texts"),
  mirostatTau: number(0, 100),
  mirostatEta: share,
  logitBias: isBias,
  bannedSequences: listOf((one) => isText(one) || isIds(one), "a list of texts and lists of token ids"),
  samplers: listOf(
    (one) => samplers.includes(one as Sampler),
    `a list of ${samplers.map((one) => `"${one}"`).join(", ")}`,
  ),
  preset: oneOf("model", "none"),
  seed: integer(0, Number.MAX_SAFE_INTEGER),
  logprobs: integer(0, 100),
  speculate: isBoolean,
};

const isScale = number(-1000, 1000);
const isUse = (one: unknown) => {
  const { name, scale = 1, ...rest } = (isObject(one) === null ? one : {}) as { name?: unknown; scale?: unknown };
  return typeof name === "string" && isScale(scale) === null && Object.keys(rest).length === 0;
};
const adapters = listOf(isUse, "a list of { name, scale }, scales from -1000 to 1000");

/** What of a generation's options goes to the engine as it is. */
export const forEngine = (options: GenerateOptions): SamplingOptions & { maxTokens?: number } =>
  Object.fromEntries(
    Object.entries(options).filter(
      ([name, value]) => value !== undefined && (name === "maxTokens" || Object.hasOwn(sampling, name)),
    ),
  );

const generate = {
  ...sampling,
  maxTokens: integer(0, MOST_TOKENS),
  stop: isStop,
  ignoreEos: isBoolean,
  addSpecial: isBoolean,
  onContextFull: oneOf("stop", "error", "shift"),
  format: checkFormat,
  logitsProcessor: isFunction,
  preprocess: oneOf("none", "safe"),
  adapters,
  signal: isSignal,
};

const completions = { n: integer(1, 256) };

const engine = {
  activations: oneOf("auto", "int8", "int14", "float"),
  kv: oneOf("auto", "f32", "f16", "fp8", "q8", "q4", "q2"),
  contextLength: integer(1, MOST_TOKENS),
  prefillChunk: integer(1, 4096),
  layout: oneOf("auto", "stored"),
  i2s: oneOf("auto", "128", "64"),
};

const isIntegrity: Check = (value) =>
  isHash(value) || (isObject(value) === null && Object.values(value as object).every(isHash))
    ? null
    : "a SHA-256 (64 hex digits, or sha256- and base64) or an object of them by file name";

const source = {
  cache: (value: unknown) =>
    typeof value === "boolean" || (typeof value === "string" && value !== "") ? null : "true, false or a directory",
  verify: oneOf("auto", "always"),
  integrity: isIntegrity,
  connections: integer(1, 16),
};

const load = {
  ...engine,
  ...source,
  maxSequences: integer(1, 4096),
  maxBatchTokens: integer(1, 4096),
  maxQueue: integer(0, MOST_TOKENS),
  cacheTokens: integer(1, MOST_TOKENS),
  prefixReuse: isBoolean,
  firstCome: isBoolean,
  adapterBytes: integer(0, 2 ** 32),
  signal: isSignal,
  onProgress: isFunction,
  threads: integer(1, 64),
  flavour: oneOf("auto", "relaxed", "simd128"),
  kernel: oneOf("auto", "dot4", "dot2"),
  spans: isBoolean,
  chatTemplate: (value: unknown) => (typeof value === "string" && value !== "" ? null : "a template's text"),
};

/** The options of each public function. */
const chat = { ...generate, tools: isList, toolChoice: isToolChoice, templateOptions: isObject };

const rules = {
  load,
  canRun: load,
  inspect: { ...engine, signal: isSignal, onProgress: isFunction, weights: isBoolean },
  generate,
  complete: { ...generate, ...completions },
  chat,
  completeChat: { ...chat, ...completions },
  session: { restore: (value: unknown) => (value instanceof Uint8Array ? null : "what session.save() gave"), adapters },
  loadAdapter: {
    ...source,
    name: (value: unknown) => (isText(value) ? null : "a text that is not empty"),
    signal: isSignal,
  },
  tokenize: { addSpecial: isBoolean },
  detokenize: { special: isBoolean },
  logits: { all: isBoolean, adapters, signal: isSignal },
  embed: { pooling: oneOf("mean", "last"), normalize: isBoolean, adapters, signal: isSignal },
  perplexity: { window: integer(2, MOST_TOKENS), adapters, signal: isSignal },
} satisfies Record<string, Record<string, Check>>;

/** Refuses what a function does not know; what is undefined counts as left out. */
export function checkOptions(name: keyof typeof rules, options: object | undefined): void {
  checkAll(name, rules[name], options);
}

export function checkAll(name: string, known: Record<string, Check>, options: object | undefined): void {
  if (options === undefined) return;
  if (isObject(options)) throw wrong(name, "options", "an object", options);
  for (const [option, value] of Object.entries(options)) {
    if (!Object.hasOwn(known, option)) {
      const expected = Object.keys(known).join(", ");
      throw new EngineError("InvalidArgument", `${name}: there is no option "${option}"; there are ${expected}`, {
        option,
        expected,
      });
    }
    const expected = value === undefined ? null : known[option]?.(value);
    if (expected) throw wrong(name, option, expected, value);
  }
}

/** Token ids as given by a caller. */
export function checkIds(name: string, ids: unknown): number[] {
  const list = Array.isArray(ids) || ids instanceof Uint32Array || ids instanceof Int32Array ? Array.from(ids) : null;
  if (!list) throw wrong(name, "ids", "a list of token ids", ids);
  const bad = list.find((id) => !(Number.isInteger(id) && id >= 0 && id <= MOST_TOKENS));
  if (bad !== undefined) throw wrong(name, "ids", "integers from 0", bad);
  return list;
}

export function checkText(name: string, text: unknown): string {
  if (typeof text !== "string") throw wrong(name, "text", "a string", text);
  return text;
}

export function checkMessages(messages: unknown): void {
  const whole = (one: unknown) => typeof (one as { role?: unknown } | null)?.role === "string";
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every(whole)) {
    throw wrong("chat", "messages", "a list of { role, content }", messages);
  }
}

function wrong(name: string, option: string, expected: string, value: unknown): EngineError {
  const found = show(value);
  return new EngineError("InvalidArgument", `${name}: ${option} must be ${expected}, not ${found}`, {
    option,
    expected,
    found,
  });
}

function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "object" && value !== null)
    return Array.isArray(value) ? "a list" : `a ${value.constructor?.name ?? "thing"}`;
  return String(value);
}
