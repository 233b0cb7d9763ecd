/** Fields that several requests share. Ranges that are the engine's own come from the option table. */

import type { Kind } from "../options/option.ts";
import { groups } from "../options/table.ts";
import type { Schema, Treatment } from "./schema.ts";

type SamplingName = keyof typeof groups.sampling;

/** An option of the table as a field that may be null. */
export function option(name: SamplingName, more: Partial<Schema> = {}): Schema {
  const kind: Kind = groups.sampling[name].kind;
  const schema = ((): Schema => {
    if (kind === "boolean") return { type: ["boolean", "null"] };
    if (typeof kind !== "object" || "values" in kind) throw new Error(`${name} is no number`);
    const whole = "integer" in kind;
    const [minimum, maximum] = whole ? kind.integer : kind.number;
    return { type: [whole ? "integer" : "number", "null"], minimum, maximum };
  })();
  return { ...schema, ...more };
}

export const text: Schema = { type: "string" };
export const textOrNull: Schema = { type: ["string", "null"] };
export const texts: Schema = { type: "array", items: text };
export const orNull = (schema: Schema): Schema => ({ anyOf: [schema, { type: "null" }] });

const treated = (treatment: Treatment) => (schema: Schema, description: string) => ({
  ...schema,
  description,
  "x-treatment": treatment,
});
/** A field that is checked and has no effect. */
export const ignored = treated("ignored");
/** A field that asks for what is not there: anything but null is refused by name. */
export const refused = (description: string): Schema => treated("refused")({ type: "null" }, description);

/** A field whose value must be one of some texts. */
export const choice = (...values: string[]): Schema => ({ type: ["string", "null"], enum: values });

/** Stop texts of a request at most: each is looked for in every piece of the answer. */
const MAX_STOPS = 64;
/** Tokens whose logits a request may change. */
const MAX_BIASES = 16_384;
/** Messages of a chat, each of which takes four tokens at least, and its tools: more than a context holds costs the time of others. */
export const MAX_MESSAGES = 16_384;
export const MAX_TOOLS = 1024;

const pair: Schema = {
  type: "array",
  minItems: 2,
  maxItems: 2,
  prefixItems: [
    { type: "integer", minimum: 0, maximum: 2 ** 31 - 1 },
    { anyOf: [{ type: "number" }, { type: "boolean", enum: [false] }] },
  ],
};

export const sampling: Readonly<Record<string, Schema>> = {
  temperature: option("temperature", { maximum: 2 }),
  top_p: option("topP"),
  frequency_penalty: option("frequencyPenalty", { minimum: -2, maximum: 2 }),
  presence_penalty: option("presencePenalty", { minimum: -2, maximum: 2 }),
  seed: {
    type: ["integer", "null"],
    minimum: -9223372036854776000,
    maximum: 9223372036854776000,
    description: "The same seed gives the same answer. The answer at index i of several has the seed plus i.",
  },
  logit_bias: {
    anyOf: [
      {
        type: "object",
        maxProperties: MAX_BIASES,
        propertyNames: { pattern: "^[0-9]{1,9}$" },
        additionalProperties: { type: "number" },
      },
      { type: "array", maxItems: MAX_BIASES, items: pair },
      { type: "null" },
    ],
    description: "Token ids with what is added to their logits; also as a list of pairs, where false forbids a token.",
  },
  stop: {
    anyOf: [text, { type: "array", maxItems: MAX_STOPS, items: text }, { type: "null" }],
    description: "Texts that end the answer and are not part of it; OpenAI takes 4.",
  },
};

/** The engine's other samplers, in the spelling of llama-server, and of vLLM where that differs. */
export const llamaSampling: Readonly<Record<string, Schema>> = {
  top_k: option("topK", { minimum: -1, description: "-1 and 0 keep all." }),
  min_p: option("minP"),
  typical_p: option("typicalP"),
  top_n_sigma: option("topNSigma", { minimum: -1, description: "Below 0 is off." }),
  xtc_probability: option("xtcProbability"),
  xtc_threshold: option("xtcThreshold"),
  repeat_penalty: option("repetitionPenalty"),
  repetition_penalty: option("repetitionPenalty", { description: "Another name of repeat_penalty." }),
  repeat_last_n: option("penaltyLastN", { minimum: -1, description: "-1 counts all; 0 switches the penalties off." }),
  dry_multiplier: option("dryMultiplier"),
  dry_base: option("dryBase"),
  dry_allowed_length: option("dryAllowedLength"),
  dry_penalty_last_n: option("dryLastN", { minimum: -1, description: "-1 counts all; 0 switches DRY off." }),
  dry_sequence_breakers: orNull(texts),
  dynatemp_range: option("dynamicTemperature"),
  dynatemp_exponent: option("dynamicExponent"),
  mirostat: {
    type: ["integer", "null"],
    enum: [0, 2],
    description: "2 switches mirostat 2 on; version 1 is not there.",
  },
  mirostat_tau: option("mirostatTau", { default: 5 }),
  mirostat_eta: option("mirostatEta"),
  samplers: {
    ...orNull({
      type: "array",
      items: {
        type: "string",
        enum: [
          "penalties",
          "dry",
          "top_n_sigma",
          "top_k",
          "typ_p",
          "typical_p",
          "top_p",
          "min_p",
          "xtc",
          "temperature",
        ],
      },
    }),
    description: "The chain in order; a sampler that is not named is off.",
  },
  ignore_eos: { type: ["boolean", "null"] },
  json_schema: { type: ["object", "null"], description: "A schema that the answer keeps to, as in response_format." },
  ...Object.fromEntries(
    ["grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"].map((name) => [
      name,
      refused("Give a schema, as response_format or json_schema."),
    ]),
  ),
  cache_prompt: ignored({ type: ["boolean", "null"] }, "Beginnings that were computed are always reused."),
};

export const streaming: Readonly<Record<string, Schema>> = {
  stream: { type: ["boolean", "null"] },
  stream_options: orNull({
    type: "object",
    properties: {
      include_usage: { type: ["boolean", "null"] },
      include_obfuscation: ignored({ type: ["boolean", "null"] }, "There is no padding."),
    },
  }),
};

/** How many tokens an answer may have. */
export const limit: Schema = {
  type: ["integer", "null"],
  minimum: -1,
  description: "-1 is no limit but the context.",
};

export const model: Schema = {
  ...text,
  description: "A name that /v1/models lists; may be left out where there is one.",
};

export const metadata = ignored(orNull({ type: "object", additionalProperties: text }), "It is not kept.");
