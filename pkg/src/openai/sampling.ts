/** From the fields of a request to the options of an answer. */

import { MAX_TOKENS } from "../options/option.ts";
import type { GenerateOptions, ResponseFormat, Sampler } from "../types/index.ts";

/** A checked request. */
export type Fields = Readonly<Record<string, unknown>>;

/** Fields whose values are an option's own. */
const SAME: Readonly<Record<string, keyof GenerateOptions>> = {
  temperature: "temperature",
  top_p: "topP",
  min_p: "minP",
  typical_p: "typicalP",
  frequency_penalty: "frequencyPenalty",
  presence_penalty: "presencePenalty",
  xtc_probability: "xtcProbability",
  xtc_threshold: "xtcThreshold",
  repeat_penalty: "repetitionPenalty",
  repetition_penalty: "repetitionPenalty",
  dry_multiplier: "dryMultiplier",
  dry_base: "dryBase",
  dry_allowed_length: "dryAllowedLength",
  dry_sequence_breakers: "dryBreakers",
  dynatemp_range: "dynamicTemperature",
  dynatemp_exponent: "dynamicExponent",
  mirostat_eta: "mirostatEta",
  ignore_eos: "ignoreEos",
};

const SAMPLERS: Readonly<Record<string, Sampler>> = {
  penalties: "penalties",
  dry: "dry",
  top_n_sigma: "topNSigma",
  top_k: "topK",
  typ_p: "typicalP",
  typical_p: "typicalP",
  top_p: "topP",
  min_p: "minP",
  xtc: "xtc",
  temperature: "temperature",
};

/** Seeds have 53 bits; further ones, and negative ones, are taken modulo. */
const SEEDS = 2 ** 53;
export function seedAt(seed: number, index: number): number {
  const own = seed % SEEDS;
  // Sums above 2^53 would be rounded.
  const whole = own < 0 ? own + SEEDS : own;
  return whole < SEEDS - index ? whole + index : index - (SEEDS - whole);
}

const given = (fields: Fields, name: string): number | undefined => (fields[name] as number | null) ?? undefined;

export function samplingOf(fields: Fields): GenerateOptions {
  const options: Record<string, unknown> = {};
  for (const [field, name] of Object.entries(SAME)) {
    if (fields[field] !== undefined && fields[field] !== null) options[name] = fields[field];
  }
  const [topK, sigma, seed] = ["top_k", "top_n_sigma", "seed"].map((name) => given(fields, name));
  if (topK !== undefined) options.topK = Math.max(0, topK);
  if (sigma !== undefined) options.topNSigma = Math.max(0, sigma);
  if (seed !== undefined) options.seed = seedAt(seed, 0);
  windows(fields, options);
  if (fields.mirostat === 2) options.mirostatTau = given(fields, "mirostat_tau") ?? 5;
  const {
    samplers,
    stop,
    logit_bias: bias,
  } = fields as { samplers?: string[] | null; stop?: string | string[] | null } & Fields;
  if (samplers) options.samplers = samplers.map((name) => SAMPLERS[name]);
  if (stop) options.stop = [stop].flat().filter((one) => one !== "");
  if (bias) options.logitBias = biases(bias);
  const responseFormat = formatOf(fields);
  return { ...options, ...(responseFormat ? { responseFormat } : {}) };
}

/** Where llama-server counts no tokens at all, the penalties are off. */
function windows(fields: Fields, options: Record<string, unknown>): void {
  const [last, dryLast] = [given(fields, "repeat_last_n"), given(fields, "dry_penalty_last_n")];
  if (last === 0) Object.assign(options, { repetitionPenalty: 1, frequencyPenalty: 0, presencePenalty: 0 });
  else if (last !== undefined) options.penaltyLastN = Math.max(0, last);
  if (dryLast === 0) options.dryMultiplier = 0;
  else if (dryLast !== undefined) options.dryLastN = Math.max(0, dryLast);
}

function biases(bias: unknown): Record<number, number> {
  if (!Array.isArray(bias)) return bias as Record<number, number>;
  return Object.fromEntries(
    bias.map(([id, value]: [number, number | false]) => [id, value === false ? -Infinity : value]),
  );
}

function formatOf(fields: Fields): ResponseFormat | undefined {
  const { response_format: format, json_schema: own } = fields as {
    response_format?: { type: string; json_schema?: { schema?: object | null } } | null;
    json_schema?: object | null;
  };
  if (own) return { type: "json_schema", schema: own };
  if (format?.type === "json_object") return "json";
  if (format?.type === "json_schema") return { type: "json_schema", schema: format.json_schema?.schema ?? true };
  return undefined;
}

/** The field that says what format an answer has: llama-server's own goes before OpenAI's. */
export const formatField = ({ json_schema: own }: Fields): string => (own ? "json_schema" : "response_format");

/** The first of some fields that has a limit. One below 0 is none; one above the room that is left is cut by the engine. */
export function limitOf(fields: Fields, names: readonly string[], byDefault: number): { maxTokens?: number } {
  const limit = names.map((name) => given(fields, name)).find((one) => one !== undefined) ?? byDefault;
  return limit < 0 ? {} : { maxTokens: Math.min(limit, MAX_TOKENS) };
}

/** Another way to write an option: its field, and the value there. */
const WRITTEN: { readonly [K in keyof GenerateOptions]?: (value: NonNullable<GenerateOptions[K]>) => Fields } = {
  maxTokens: (max_tokens) => ({ max_tokens }),
  topK: (top_k) => ({ top_k }),
  topNSigma: (top_n_sigma) => ({ top_n_sigma }),
  seed: (seed) => ({ seed }),
  stop: (stop) => ({ stop }),
  // All tokens are -1 there, and none are 0.
  penaltyLastN: (last) => ({ repeat_last_n: last || -1 }),
  dryLastN: (last) => ({ dry_penalty_last_n: last || -1 }),
  mirostatTau: (tau) => (tau === 0 ? { mirostat: 0 } : { mirostat: 2, mirostat_tau: tau }),
  samplers: (samplers) => ({ samplers: samplers.map((name) => inverse(SAMPLERS, name)) }),
  logitBias: (bias) => ({
    logit_bias: Object.entries(bias).map(([id, value]) => [Number(id), value === -Infinity ? false : value]),
  }),
};

/** The options of an answer as fields of a request, and the options that no request has. */
export function fieldsOf(options: GenerateOptions): { fields: Fields; unknown: (keyof GenerateOptions)[] } {
  const fields: Record<string, unknown> = {};
  const unknown: (keyof GenerateOptions)[] = [];
  for (const [key, value] of Object.entries(options) as [keyof GenerateOptions, unknown][]) {
    const write = WRITTEN[key] as ((value: unknown) => Fields) | undefined;
    const same = inverse(SAME, key);
    if (write) Object.assign(fields, write(value));
    else if (same !== undefined) fields[same] = value;
    else unknown.push(key);
  }
  return { fields, unknown };
}

const inverse = <T>(names: Readonly<Record<string, T>>, value: T): string | undefined =>
  Object.keys(names).find((name) => names[name] === value);
