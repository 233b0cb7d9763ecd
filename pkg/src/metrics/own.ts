/** Metrics under this project's own names. */

import type { Health, HealthState, RequestOutcome } from "../types/index.ts";
import { type Measured, maker } from "./measured.ts";
import { REFUSALS } from "./recorder.ts";
import { coarser, type Family, type Labels } from "./text.ts";

const SECONDS = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640,
];
const TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];

/** Long because it is a table. */
export function ownFamilies(all: readonly Measured[]): Family[] {
  const { number, histogram } = maker(all, ({ name }) => ({ model: name }));
  const seconds = (name: string, help: string, of: Parameters<typeof histogram>[2]) =>
    histogram(`ternlight_${name}_seconds`, help, of, (found) => coarser(found, SECONDS));
  const tokens = (name: string, help: string, of: Parameters<typeof histogram>[2]) =>
    histogram(`ternlight_${name}_tokens`, help, of, (found) => coarser(found, TOKENS));
  return [
    number("info", "ternlight_model_info", "What a model is.", ({ info }) => [
      [
        {
          architecture: info.architecture,
          format: info.format,
          parameters: info.parameters,
          bits_per_weight: info.bitsPerWeight.toFixed(3),
        },
        1,
      ],
    ]),
    number("info", "ternlight_build_info", "How a model runs.", ({ info }) => [
      [
        {
          flavour: info.flavour,
          dot_product: info.dotProduct,
          kv_cache_type: info.kvCacheType,
          activations: info.activations,
        },
        1,
      ],
    ]),
    number("counter", "ternlight_requests_total", "Calls that have ended, by how they did.", ({ statistics }) => {
      const each = statistics.requests.map(
        ({ call, outcome, count }) => [{ call, outcome }, count] as [object, number],
      );
      // A rate needs its counter from the beginning.
      const zeros = (["stop", "length", "stopped", "refused", "error"] as RequestOutcome[])
        .filter((outcome) => !statistics.requests.some((one) => one.call === "generate" && one.outcome === outcome))
        .map((outcome) => [{ call: "generate", outcome }, 0] as [object, number]);
      return [...each, ...zeros] as [Record<string, string>, number][];
    }),
    number(
      "counter",
      "ternlight_refusals_total",
      "Calls that there was no room for, by the reason; the server makes those of a part of a request again.",
      (one) => REFUSALS.map((reason) => [{ reason }, one.statistics.errors[reason] ?? 0]),
    ),
    number("counter", "ternlight_errors_total", "Requests that failed, by the code of the error.", ({ statistics }) =>
      Object.entries(statistics.errors).map(([code, count]) => [{ code }, count]),
    ),
    number(
      "counter",
      "ternlight_prompt_tokens_total",
      "Prompt tokens that were computed.",
      (one) => one.statistics.promptTokens,
    ),
    number(
      "counter",
      "ternlight_cached_tokens_total",
      "Tokens before answers that did not need to be computed.",
      (one) => one.statistics.cachedTokens,
    ),
    number(
      "counter",
      "ternlight_generated_tokens_total",
      "Tokens of answers.",
      (one) => one.statistics.generatedTokens,
    ),
    seconds("first_token", "From the call to the first token.", "firstToken"),
    seconds("gap", "Between two tokens of an answer.", "gap"),
    seconds("queue", "From the call to a place in a batch.", "queue"),
    seconds("prefill", "From the first batch to the first token.", "prefill"),
    seconds("decode", "From the first token to the last.", "decode"),
    seconds("request", "From the call to the end of the answer.", "request"),
    seconds("step", "Computing one batch.", "step"),
    tokens("step", "Tokens of one batch.", "stepTokens"),
    tokens("request_prompt", "Tokens before an answer.", "promptTokens"),
    tokens("request_answer", "Tokens of an answer.", "generatedTokens"),
    number("gauge", "ternlight_requests_running", "Requests that are computed.", ({ status }) => status.running),
    number("gauge", "ternlight_queue_depth", "Requests that wait for a place.", ({ status }) => status.waiting),
    number("gauge", "ternlight_requests_paused", "Requests that wait for their reader.", ({ status }) => status.paused),
    number(
      "gauge",
      "ternlight_kv_cache_tokens",
      "Tokens whose keys and values there is room for.",
      ({ status }) => status.kvCacheTokens,
    ),
    number(
      "gauge",
      "ternlight_kv_cache_used_tokens",
      "Of these, tokens of open sessions and running requests.",
      ({ status }) => status.usedTokens,
    ),
    number(
      "gauge",
      "ternlight_kv_cache_evictable_tokens",
      "Of these, tokens that are kept until their room is needed.",
      ({ status }) => status.evictableTokens,
    ),
    number("gauge", "ternlight_kv_cache_usage_ratio", "The share of the KV cache that is in use.", usage),
    number("gauge", "ternlight_memory_bytes", "WebAssembly memory that is held.", ({ status }) => status.memoryBytes),
    number("gauge", "ternlight_weights_bytes", "Memory of the weights.", ({ info }) => info.memory.weights),
    number("gauge", "ternlight_threads", "Threads that compute.", ({ status }) => status.threads),
    number(
      "gauge",
      "ternlight_max_sequences",
      "Requests that are computed together at most.",
      ({ info }) => info.maxSequences,
    ),
    number("gauge", "ternlight_health_state", "A signal of health: 0 ok, 1 warn, 2 alert, -1 unknown.", ({ health }) =>
      signalsOf(health).map(([signal, { state }]) => [{ signal }, STATES.indexOf(state) - 1]),
    ),
    number("gauge", "ternlight_health_value", "What a signal of health measures.", ({ health }) =>
      signalsOf(health).flatMap(([signal, { value }]) => (value === null ? [] : [[{ signal }, value]])),
    ),
    number("gauge", "ternlight_health_kv_entropy", "Bits of keys and of values of a layer.", ({ health }) =>
      (health?.signals.kvEntropy.layers ?? []).flatMap((bits, layer) =>
        bits ? (["keys", "values"] as const).map((part): [Labels, number] => [{ layer, part }, bits[part]]) : [],
      ),
    ),
    number("gauge", "ternlight_health_threshold", "From where on a signal of health is in a state.", ({ health }) =>
      signalsOf(health).flatMap(([signal, { warn, alert }]) => [
        [{ signal, state: "warn" }, warn],
        [{ signal, state: "alert" }, alert],
      ]),
    ),
  ];
}

const STATES: readonly HealthState[] = ["unknown", "ok", "warn", "alert"];
const signalsOf = (health?: Health) => Object.entries(health?.signals ?? {});

export const usage = ({ status }: Measured): number =>
  status.kvCacheTokens > 0 ? status.usedTokens / status.kvCacheTokens : 0;
