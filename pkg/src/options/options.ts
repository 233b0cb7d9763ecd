/** Options are checked where they enter: an unknown name or a wrong type is an error that says which. */

import type { GenerateOptions, Sampler, SamplingOptions } from "../types/index.ts";
import {
  type Check,
  checkAll,
  checked,
  integer,
  isBoolean,
  isFunction,
  isList,
  isObject,
  isSignal,
  number,
  oneOf,
  wrong,
} from "./check.ts";
import { checkFormat } from "./format.ts";
import { samplers } from "./samplers.ts";

const isHash = (value: unknown) =>
  typeof value === "string" && /^([0-9a-f]{64}|sha256-[A-Za-z0-9+/]{43}=)$/i.test(value);

const isToolChoice: Check = (value) =>
  ["auto", "none", "required"].includes(value as string) ||
  typeof (value as { name?: unknown } | null)?.name === "string"
    ? null
    : '"auto", "none", "required" or { name }';

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
const isName: Check = (value) => (isText(value) ? null : "a text that is not empty");
const isIds = (value: unknown) =>
  Array.isArray(value) && value.length > 0 && value.every((id) => Number.isInteger(id) && id >= 0 && id <= MOST_TOKENS);

const isBias: Check = (value) => {
  const fine = ([id, bias]: [string, unknown]) => /^\d{1,9}$/.test(id) && typeof bias === "number" && bias <= 1e30;
  return isObject(value) === null && Object.entries(value as object).every(fine)
    ? null
    : "an object of token ids with numbers or -Infinity";
};

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
  adapterBytes: integer(0, 2 ** 31),
  signal: isSignal,
  onProgress: isFunction,
  threads: integer(1, 64),
  flavour: oneOf("auto", "relaxed", "simd128"),
  kernel: oneOf("auto", "dot4", "dot2"),
  spans: isBoolean,
  chatTemplate: (value: unknown) => (typeof value === "string" && value !== "" ? null : "a template's text"),
};

/** The options of each public function. */
const chat = {
  ...generate,
  tools: isList,
  toolChoice: isToolChoice,
  templateOptions: isObject,
  parseSpecialTokens: isBoolean,
};

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
    name: isName,
    signal: isSignal,
  },
  tokenize: { addSpecial: isBoolean },
  detokenize: { special: isBoolean },
  logits: { all: isBoolean, adapters, signal: isSignal },
  embed: { pooling: oneOf("mean", "last"), normalize: isBoolean, adapters, signal: isSignal },
  cache: { directory: isName },
  perplexity: { window: integer(2, MOST_TOKENS), adapters, signal: isSignal },
} satisfies Record<string, Record<string, Check>>;

/** As `checkAll`; `label` is what the caller knows the function as. */
export function checkOptions<T extends object>(
  name: keyof typeof rules,
  options: T | undefined,
  label: string = name,
): T {
  return checkAll(label, rules[name], options);
}

/** Token ids as given by a caller. */
export function checkIds(name: string, ids: unknown, option = "ids", expected = "a list of token ids"): number[] {
  const list = Array.isArray(ids) || ids instanceof Uint32Array || ids instanceof Int32Array ? Array.from(ids) : null;
  if (!list) throw wrong(name, option, expected, ids);
  const id = integer(0, MOST_TOKENS);
  for (const one of list) checked(name, "ids", (value) => id(value) && "integers from 0", one);
  return list;
}

const isString: Check = (value) => (typeof value === "string" ? null : "a string");

export const checkText = (name: string, text: string, option = "text"): string => checked(name, option, isString, text);

export function checkTexts(name: string, texts: unknown): (string | number[])[] {
  const expected = "a list of texts and lists of token ids";
  if (!Array.isArray(texts)) throw wrong(name, "texts", expected, texts);
  return texts.map((text) => (typeof text === "string" ? text : checkIds(name, text, "texts", expected)));
}

export const checkCount = (name: string, count: number, most: number): number =>
  checked(name, "count", integer(0, most), count);

export function checkMessages(messages: unknown): void {
  const whole = (one: unknown) => typeof (one as { role?: unknown } | null)?.role === "string";
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every(whole)) {
    throw wrong("chat", "messages", "a list of { role, content }", messages);
  }
}
