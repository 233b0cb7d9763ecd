/** Metrics under the names of llama-server and vLLM, for dashboards, autoscalers and gateways that know these. */

import type { Histogram, MetricsDialect, RequestOutcome } from "../types/index.ts";
import { countOf, type Measured, maker } from "./measured.ts";
import { ownFamilies, usage } from "./own.ts";
import { coarser, type Family } from "./text.ts";

/** Positions of a block of the KV cache, as in the engine. */
const KV_BLOCK = 32;

export const families: Readonly<Record<MetricsDialect, (all: readonly Measured[]) => Family[]>> = {
  ternlight: ownFamilies,
  llama: llamaFamilies,
  vllm: vllmFamilies,
};

/** llama-server has one model and no label for it. */
function llamaFamilies(all: readonly Measured[]): Family[] {
  const { number } = maker(all, ({ name }): Record<string, string> => (all.length > 1 ? { model: name } : {}));
  const counter = (name: string, help: string, value: (one: Measured) => number) =>
    number("counter", `llamacpp:${name}`, help, value);
  const gauge = (name: string, help: string, value: (one: Measured) => number) =>
    number("gauge", `llamacpp:${name}`, help, value);
  const time = ({ statistics }: Measured, of: "prefill" | "decode") => statistics.histograms[of].sum;
  const steps = ({ statistics }: Measured) => countOf(statistics.histograms.step);
  const rate = (tokens: number, seconds: number) => (seconds > 0 ? tokens / seconds : 0);
  return [
    counter("prompt_tokens_total", "Number of prompt tokens processed.", (one) => one.statistics.promptTokens),
    counter("prompt_seconds_total", "Prompt process time.", (one) => time(one, "prefill")),
    counter(
      "tokens_predicted_total",
      "Number of generation tokens processed.",
      (one) => one.statistics.generatedTokens,
    ),
    counter("tokens_predicted_seconds_total", "Predict process time.", (one) => time(one, "decode")),
    counter("n_decode_total", "Number of batches computed.", steps),
    counter("n_tokens_max", "Largest number of tokens of a conversation.", (one) => one.statistics.longestTokens),
    gauge("n_busy_slots_per_decode", "Mean number of requests in a batch.", (one) =>
      rate(one.statistics.batchedRequests, steps(one)),
    ),
    gauge("prompt_tokens_seconds", "Mean prompt throughput in tokens/s.", (one) =>
      rate(one.statistics.promptTokens, time(one, "prefill")),
    ),
    gauge("predicted_tokens_seconds", "Mean generation throughput in tokens/s.", (one) =>
      rate(one.statistics.generatedTokens, time(one, "decode")),
    ),
    gauge("kv_cache_usage_ratio", "KV cache usage; 1 is 100 per cent.", usage),
    gauge("kv_cache_tokens", "KV cache tokens in use.", ({ status }) => status.usedTokens),
    gauge("requests_processing", "Number of requests processing.", ({ status }) => status.running),
    gauge("requests_deferred", "Number of requests deferred.", ({ status }) => status.waiting + status.paused),
  ];
}

const FIRST_TOKEN = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
const PER_TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
const REQUEST = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];
const STEP_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const SIZES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000];

/** vLLM's reasons, each with the outcomes that it stands for. */
const REASONS: Readonly<Record<string, readonly RequestOutcome[]>> = {
  stop: ["stop"],
  length: ["length"],
  abort: ["stopped", "aborted"],
  error: ["error"],
};

function vllmFamilies(all: readonly Measured[]): Family[] {
  const { number, histogram } = maker(all, ({ name }) => ({ model_name: name, engine: "0" }));
  const counter = (name: string, help: string, value: (one: Measured) => number) =>
    number("counter", `vllm:${name}`, help, value);
  const gauge = (name: string, help: string, value: (one: Measured) => number) =>
    number("gauge", `vllm:${name}`, help, value);
  const times = (name: string, help: string, of: Parameters<typeof histogram>[2], bounds: readonly number[]) =>
    histogram(`vllm:${name}`, help, of, (found) => coarser(found, bounds));
  const sizes = (name: string, help: string, of: Parameters<typeof histogram>[2]) =>
    histogram(`vllm:${name}`, help, of, (found, { info }) => upTo(found, info.contextLength));
  const prompts = ({ statistics }: Measured) => statistics.promptTokens + statistics.cachedTokens;
  const cached = ({ statistics }: Measured) => statistics.cachedTokens;
  return [
    gauge("num_requests_running", "Requests in model execution batches.", ({ status }) => status.running),
    gauge("num_requests_waiting", "Requests waiting to be processed.", ({ status }) => status.waiting + status.paused),
    gauge("kv_cache_usage_perc", "KV cache usage; 1 is 100 per cent.", usage),
    number("gauge", "vllm:cache_config_info", "Information of the KV cache.", ({ status, info }) => [
      [
        {
          block_size: KV_BLOCK,
          num_gpu_blocks: Math.floor(status.kvCacheTokens / KV_BLOCK),
          cache_dtype: info.kvCacheType,
        },
        1,
      ],
    ]),
    number("gauge", "vllm:lora_requests_info", "Adapters of running requests; the value is a time.", (one) => {
      if (one.adapters.length === 0) return [];
      const running = Object.entries(one.statistics.adapters).filter(([, count]) => count > 0);
      const names = running.map(([name]) => name).join(",");
      const labels = { max_lora: one.adapters.length, running_lora_adapters: names, waiting_lora_adapters: "" };
      return [[labels, Math.floor(Date.now() / 1000)]];
    }),
    counter("prompt_tokens_total", "Prefill tokens processed.", prompts),
    counter("generation_tokens_total", "Generation tokens processed.", (one) => one.statistics.generatedTokens),
    number("counter", "vllm:request_success_total", "Requests that were processed.", ({ statistics }) =>
      Object.entries(REASONS).map(([finished_reason, outcomes]) => {
        const own = statistics.requests.filter(
          ({ call, outcome }) => call === "generate" && outcomes.includes(outcome),
        );
        return [{ finished_reason }, own.reduce((sum, { count }) => sum + count, 0)];
      }),
    ),
    counter("prefix_cache_queries_total", "Prefix cache queries, in tokens.", prompts),
    counter("prefix_cache_hits_total", "Prefix cache hits, in tokens.", cached),
    counter("prompt_tokens_cached_total", "Prompt tokens that were cached.", cached),
    times("time_to_first_token_seconds", "Time to the first token.", "firstToken", FIRST_TOKEN),
    times("inter_token_latency_seconds", "Time between tokens.", "gap", PER_TOKEN),
    times("request_time_per_output_token_seconds", "Mean time per output token of a request.", "perToken", PER_TOKEN),
    times("e2e_request_latency_seconds", "Time of whole requests.", "request", REQUEST),
    times("request_queue_time_seconds", "Time in the waiting phase.", "queue", REQUEST),
    times("request_prefill_time_seconds", "Time in the prefill phase.", "prefill", REQUEST),
    times("request_decode_time_seconds", "Time in the decode phase.", "decode", REQUEST),
    sizes("request_prompt_tokens", "Prefill tokens of a request.", "promptTokens"),
    sizes("request_generation_tokens", "Generation tokens of a request.", "generatedTokens"),
    // Each answer is a call of its own here, where vLLM takes the longest of a request's.
    sizes("request_max_num_generation_tokens", "Most generation tokens of an answer.", "generatedTokens"),
    times("iteration_tokens_total", "Tokens of an engine step.", "stepTokens", STEP_TOKENS),
  ];
}

/** vLLM's sizes go up to the context. */
const upTo = (found: Histogram, context: number): Histogram =>
  coarser(
    found,
    SIZES.filter((size) => size <= context),
  );
