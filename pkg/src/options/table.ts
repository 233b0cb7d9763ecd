/**
 * The option table: every option and flag stands in it once. Checks, what crosses to the engine, the command line and the reference
 * pages come from it; tests hold the public types and the engine to it. Of what stands here, pages load names, kinds and old names
 * alone (`pkg/scripts/options.mjs`).
 */

import type { Group } from "./option.ts";
import * as calls from "./table/calls.ts";
import * as generate from "./table/generate.ts";
import * as load from "./table/load.ts";
import { sampling } from "./table/sampling.ts";

/** Options of functions. */
export const groups = { ...load, sampling, ...generate, ...calls } as const satisfies Record<string, Group>;

export type GroupName = keyof typeof groups;

const loads = ["plan", "batching", "serving", "runtime", "source", "loading", "progress", "abort"] as const;
const generates = ["sampling", "generation", "prompting", "constraints", "handing", "adapting", "abort"] as const;

/** Which options each function takes. */
export const functions = {
  load: loads,
  canRun: [...loads, "fitting"],
  configure: ["batching"],
  inspect: ["plan", "batching", "inspecting", "progress", "abort"],
  doctor: ["examining", "abort"],
  deviceReport: ["abort"],
  /** `generate` and `chat` of a session. */
  generate: generates,
  chat: [...generates, "chatting"],
  /** `generate` and `chat` of a model. */
  complete: [...generates, "completions"],
  completeChat: [...generates, "chatting", "completions"],
  session: ["adapting"],
  restoreSession: ["adapting"],
  renderChat: ["chatting", "rendering"],
  countTokens: ["chatting", "rendering", "prompting"],
  loadAdapter: ["source", "adapter", "abort"],
  tokenize: ["chatting", "rendering", "prompting"],
  detokenize: ["detokenizing"],
  promptLogprobs: ["scoring", "adapting", "abort"],
  logits: ["logits", "adapting", "abort"],
  embed: ["embedding", "adapting", "abort"],
  perplexity: ["perplexity", "adapting", "abort"],
  health: ["wellness", "abort"],
  metrics: ["metering"],
  cache: ["caching"],
} as const satisfies Record<string, readonly GroupName[]>;

export type FunctionName = keyof typeof functions;
