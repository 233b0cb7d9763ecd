/** POST /v1/completions: the request. */

import type { Prompt } from "../types/index.ts";
import type { Ask } from "./ask.ts";
import { faulty, invalid } from "./errors.ts";
import { ignored, limit, llamaSampling, model, option, refused, sampling, streaming, text, texts } from "./fields.ts";
import { type Fields, formatField, limitOf, samplingOf } from "./sampling.ts";
import { check, type Schema } from "./schema.ts";

export const ids: Schema = { type: "array", minItems: 1, items: { type: "integer", minimum: 0, maximum: 2 ** 31 - 1 } };

export const completionRequest: Schema = {
  type: "object",
  required: ["model", "prompt"],
  properties: {
    model,
    prompt: {
      anyOf: [text, { ...texts, minItems: 1 }, ids, { type: "array", minItems: 1, items: ids }, { type: "null" }],
      description: "A text, texts, token ids or lists of token ids; null begins with nothing.",
    },
    max_tokens: limit,
    n: { type: ["integer", "null"], minimum: 1, maximum: 128 },
    ...sampling,
    ...streaming,
    echo: { type: ["boolean", "null"], description: "With logprobs, those of the prompt are reported too." },
    logprobs: option("logprobs", { maximum: 5 }),
    ...llamaSampling,
    best_of: { type: ["integer", "null"], enum: [1], description: "Any other number is refused." },
    suffix: refused("Models here continue a text and fill no gaps."),
    user: ignored({ type: ["string", "null"] }, "It is not kept."),
  },
};

export function readCompletion(body: unknown, defaultMaxTokens: number): Ask {
  const fault = check(completionRequest, body);
  if (fault) throw faulty(fault);
  const fields = body as Fields & { model: string };
  const { stream_options: streamed, logprobs } = fields as {
    stream_options?: { include_usage?: boolean } | null;
    logprobs?: number | null;
  };
  const prompts = promptsOf(fields.prompt as PromptField);
  const n = (fields.n as number | null) ?? 1;
  if (prompts.length * n > MAX_PROMPTS)
    throw invalid(
      "n",
      `n answers to each of ${prompts.length} prompts are ${prompts.length * n}; ${MAX_PROMPTS} are allowed`,
    );
  return {
    model: fields.model,
    prompts,
    options: {
      ...samplingOf(fields),
      ...limitOf(fields, ["max_tokens"], defaultMaxTokens),
      ...(logprobs === undefined || logprobs === null ? {} : { logprobs }),
    },
    n,
    stream: fields.stream === true,
    includeUsage: streamed?.include_usage === true,
    calls: false,
    oneCall: false,
    echo: fields.echo === true,
    param: "prompt",
    format: formatField(fields),
  };
}

type PromptField = string | string[] | number[] | number[][] | null;

/** As many prompts as one request may have, and answers to all of them; the queue is for further ones. */
const MAX_PROMPTS = 2048;

export function promptsOf(prompt: PromptField, param = "prompt"): Prompt[] {
  if (!Array.isArray(prompt)) return [prompt ?? ""];
  const prompts = typeof prompt[0] === "number" ? [prompt as number[]] : (prompt as (string | number[])[]);
  if (prompts.length > MAX_PROMPTS)
    throw invalid(param, `${param} has ${prompts.length} texts; at most ${MAX_PROMPTS} are allowed`);
  return prompts;
}
