/** The table of verbs: which handler answers which call. */

import type { Handlers } from "../call.ts";
import { loadAdapter, unloadAdapter } from "./adapters.ts";
import { generate } from "./generate.ts";
import { canRun, inspect, load } from "./load.ts";
import { measure, roofline, times, trace } from "./measure.ts";
import { embed, logits, perplexity, promptLogprobs } from "./score.ts";
import { closeSession, forkSession, heldSession, restoreSession, rewindSession, saveSession } from "./sessions.ts";
import { configure, health, metrics, statistics, status, warmup } from "./status.ts";
import { detokenize, renderChat, tokenBytes, tokenize, tokenizerInfo } from "./tokenize.ts";

export const verbs: Handlers = {
  load,
  inspect,
  canRun,
  generate,
  closeSession,
  forkSession,
  rewindSession,
  heldSession,
  saveSession,
  restoreSession,
  loadAdapter,
  unloadAdapter,
  configure,
  warmup,
  status,
  statistics,
  health,
  metrics,
  logits,
  embed,
  perplexity,
  promptLogprobs,
  tokenize,
  detokenize,
  renderChat,
  tokenizerInfo,
  tokenBytes,
  measure,
  trace,
  times,
  roofline,
};
