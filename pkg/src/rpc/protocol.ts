/** The messages between a model's owner and its engine: one map of verbs, with calls and replies keyed by request. */

import type { FormatSpec } from "../options/response_format.ts";
import type { NamesTo } from "../options/routes.ts";
import type { SourceSpec } from "../source/spec.ts";
import type { ErrorDetail } from "../types/errors.ts";
import type {
  AdapterInfo,
  AdapterUse,
  BatchingOptions,
  CanRun,
  ChatMessage,
  ContextFull,
  Description,
  Finished,
  Health,
  HealthOptions,
  LoadOptions,
  MetricsDialect,
  MetricsFormat,
  ModelInfo,
  ModelStatus,
  Perplexity,
  Piece,
  Pooling,
  Progress,
  SamplingOptions,
  SourceOptions,
  Statistics,
  TokenBytes,
  TokenizerInfo,
  TokenLogprobs,
  Truncate,
} from "../types/index.ts";
import type { TimeSpan } from "./user_timing.ts";

/** All options of a load except those that work on the owner's side. */
export type LoadSettings = Omit<LoadOptions, NamesTo<"caller">>;

/** The ones that the engine plans with. */
export type EngineSettings = Pick<LoadSettings, NamesTo<"plan">>;

export interface AdapterSettings extends SourceOptions {
  name?: string;
}

export interface ChatPrompt {
  messages: ChatMessage[];
  tools?: unknown[];
  /** The answer may hold nothing but calls. */
  toolChoice?: "required" | { name: string };
  templateOptions?: Record<string, unknown>;
  /** Special tokens written out in messages become those tokens. */
  parseSpecialTokens?: boolean;
}

export type PromptSpec = { text: string; addSpecial: boolean } | { ids: number[] } | ChatPrompt;

export interface GenerateSettings extends SamplingOptions {
  maxTokens?: number;
  stop: string[];
  ignoreEos: boolean;
  onContextFull: ContextFull;
  truncate?: Truncate;
  responseFormat?: FormatSpec;
  adapters?: readonly AdapterUse[];
  /** Special tokens of the answer stay in its text. */
  keepSpecialTokens?: boolean;
  /** Texts of the prompt are cleaned before they are tokenized. */
  sanitize: boolean;
  /** Every choice is preceded by a `ChooseEvent` and waits for the `supply` that answers it. */
  logitsProcessor: boolean;
}

/** What a generation would choose from, and all ids that its conversation holds. */
export interface ChooseEvent {
  logits: Float32Array;
  tokens: number[];
}

/** How a generation ended, and the ids that its session holds by then. */
export interface Ended {
  finished: Finished;
  held: number[];
}

/** One phase of a measured run, from its first step to its last. */
export interface Phase {
  ms: number;
  /** Milliseconds of each step. */
  steps: number[];
  weightBytes: number;
  /** Products with weights. */
  weightMacs: number;
  /** Growth of the wasm memory. */
  grownBytes: number;
  /**
   * Calls, milliseconds, bytes and products of each operation; empty unless a profile was asked for. With `each`, one such list for
   * each operation that ran, one behind another, and each is a step of its own.
   */
  profile: number[];
}

interface Adapted {
  adapters?: readonly AdapterUse[] | undefined;
}

interface Verb<Args, Result, Event = never> {
  args: Args;
  result: Result;
  event: Event;
}

export interface Verbs {
  load: Verb<{ source: SourceSpec; settings: LoadSettings }, ModelInfo, Progress>;
  inspect: Verb<{ source: SourceSpec; settings: EngineSettings; weights: boolean }, Description, Progress>;
  /** `free` is what another machine has; null where that is not known, and this one's where it is left out. */
  canRun: Verb<
    { source: SourceSpec; settings: LoadSettings; memory?: number | undefined; free?: number | null | undefined },
    CanRun,
    Progress
  >;
  /** `session` is the owner's number of a session; null for a session that ends with the generation. */
  generate: Verb<
    { session: number | null; prompt: PromptSpec; settings: GenerateSettings },
    Ended,
    Piece[] | ChooseEvent
  >;
  closeSession: Verb<{ session: number }, null>;
  /** Makes `as` a session that begins with what `session` holds. */
  forkSession: Verb<{ session: number; as: number }, number[]>;
  /** Forgets the last `count` ids; returns those that stay. */
  rewindSession: Verb<{ session: number; count: number }, number[]>;
  /** The ids that a session holds. */
  heldSession: Verb<{ session: number }, number[]>;
  saveSession: Verb<{ session: number } & Adapted, Uint8Array>;
  restoreSession: Verb<{ session: number; bytes: Uint8Array } & Adapted, number[]>;
  /** Messages as a generation would compute them: their text, and how many ids that is. */
  renderChat: Verb<{ prompt: ChatPrompt; addGenerationPrompt: boolean }, { text: string; ids: number[] }>;
  loadAdapter: Verb<{ source: SourceSpec; settings: AdapterSettings }, AdapterInfo>;
  unloadAdapter: Verb<{ name: string }, null>;
  /** Answers how many requests are computed together from now on. */
  configure: Verb<BatchingOptions, number>;
  warmup: Verb<Record<string, never>, null>;
  status: Verb<Record<string, never>, ModelStatus>;
  health: Verb<Omit<HealthOptions, "signal">, Health>;
  statistics: Verb<Record<string, never>, Statistics>;
  metrics: Verb<{ format: MetricsFormat; dialect: MetricsDialect }, string>;
  logits: Verb<{ ids: number[]; all: boolean } & Adapted, Float32Array[]>;
  embed: Verb<
    { texts: (string | number[])[]; pooling: Pooling | undefined; normalize: boolean } & Adapted,
    Float32Array[]
  >;
  perplexity: Verb<{ text: string; window: number } & Adapted, Perplexity>;
  tokenize: Verb<{ text: string; addSpecial: boolean }, number[]>;
  detokenize: Verb<{ ids: number[]; special: boolean }, string>;
  tokenizerInfo: Verb<Record<string, never>, TokenizerInfo>;
  tokenBytes: Verb<{ ids: number[] }, TokenBytes[]>;
  promptLogprobs: Verb<{ ids: number[]; logprobs: number } & Adapted, TokenLogprobs[]>;
  /**
   * Each list of ids is a conversation; `past` is what it holds before anything is timed. It begins when nothing else
   * runs on the engine; what begins meanwhile is computed beside it, and timed with it. The event comes when decoding begins.
   */
  measure: Verb<
    { past: number[][]; prompts: number[][]; decode: number; profile: boolean | "each" },
    { prefill: Phase; decode: Phase; memoryBytes: number; operations: string[] },
    null
  >;
  /** The numbers of each matrix, as the engine's `trace` reports them, for a prompt that is one step; with codes where they are counted. */
  trace: Verb<{ ids: number[]; counted: boolean }, { prefill: number[]; decode: number[] }>;
  /** Three numbers of each matrix, in the order of `trace`: see the engine's `trace`. */
  times: Verb<{ streams: number }, number[]>;
  /** GB/s for each number of streams per thread, and 10⁹ products per second, `repeat` times. Needs no model. */
  roofline: Verb<
    {
      settings: Pick<LoadSettings, "threads" | "flavour" | "dotProduct">;
      bytes: number;
      streams: number[];
      repeat: number;
    },
    { bytes: number; threads: number; flavour: string; read: number[][]; multiply: number[] }
  >;
}

export type VerbName = keyof Verbs;

export type Call = { [V in VerbName]: { id: number; verb: V; args: Verbs[V]["args"] } }[VerbName];

/**
 * `stop` ends a generation with what there is; `abort` ends a call whose answer nobody awaits any more; `read` acknowledges
 * pieces of a generation (see backpressure.ts); `supply` answers a `ChooseEvent`.
 */
export type Control =
  | { id: number; control: "stop" | "abort" | "ping" }
  | { id: number; control: "read"; pieces: number }
  | { id: number; control: "supply"; logits: Float32Array };

/** An error as data. `code` is absent for an error that is none of this package's: a defect. */
export interface ErrorData {
  code?: string;
  message: string;
  detail?: ErrorDetail;
  stack?: string;
}

export type Reply =
  | { id: number; event: unknown }
  | { id: number; result: unknown }
  | { id: number; error: ErrorData }
  /** Spans of time, for a load with `userTiming`. */
  | { spans: TimeSpan[] }
  /** A thread of the engine's has started, whose end closes the port or frees the lock; null where all are about to be ended. */
  | { thread: MessagePort | string | null }
  /** The engine cannot continue: no call will be answered any more. */
  | { fatal: ErrorData };
