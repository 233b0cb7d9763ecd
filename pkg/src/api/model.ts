/** The public objects, over calls to the engine's worker. */

import { checkIds, checkMessages, checkOptions, checkText, checkTexts, defaults } from "../options/options.ts";
import { Client } from "../rpc/client.ts";
import type { WorkerPort } from "../rpc/port.ts";
import { hasAddress } from "../source/spec.ts";
import { type SourceRules, withSource } from "../source/with_source.ts";
import { EngineError } from "../types/errors.ts";
import type {
  AdapterInfo,
  AdapterOptions,
  BatchingOptions,
  CanRun,
  CanRunOptions,
  ChatMessage,
  ChatOptions,
  CompletionOptions,
  CountOptions,
  Description,
  DetokenizeOptions,
  EmbedOptions,
  GenerateOptions,
  Generation,
  Health,
  HealthOptions,
  InspectOptions,
  LoadOptions,
  LogitsOptions,
  MetricsOptions,
  Model,
  ModelInfo,
  ModelSource,
  ModelStatus,
  Perplexity,
  PerplexityOptions,
  Prompt,
  PromptLogprobsOptions,
  RenderOptions,
  Session,
  SessionOptions,
  Statistics,
  TokenBytes,
  TokenizeOptions,
  TokenizerInfo,
  TokenLogprobs,
} from "../types/index.ts";
import { type Caller, chat, chatPrompt, generate } from "./answers.ts";
import { OpenSession } from "./session.ts";

/** What the public objects need from their runtime. The entry files provide it. */
export interface Outside extends SourceRules {
  spawnEngine(): WorkerPort;
  /** Resolves with the next frame that is shown; absent where nothing is. */
  frame?(): Promise<void>;
  /** Asks the runtime to keep the storage when space is short. */
  persist?(): void;
}

export async function load(outside: Outside, source: ModelSource, options: LoadOptions = {}): Promise<Model> {
  const { signal, onProgress, ...settings } = checkOptions("load", options);
  const info = (client: Client) =>
    withSource(outside, source, { signal, cache: settings.cache }, async (spec, told) => {
      if (settings.cache !== false && hasAddress(spec)) outside.persist?.();
      const events = { signal, ...(onProgress ? { onEvent: onProgress } : {}) };
      const info = await client.call("load", { source: spec, settings }, events);
      info.warnings.push(...told);
      return info;
    });
  const client = new Client(outside.spawnEngine());
  try {
    return new LoadedModel(client, await info(client), outside);
  } catch (error) {
    const ended = client.close(closed());
    // After an abort the caller is rejected at once; otherwise when the memory is free, for the next attempt.
    if (!signal?.aborted) await ended;
    throw error;
  }
}

export async function inspect(
  outside: Outside,
  source: ModelSource,
  options: InspectOptions = {},
): Promise<Description> {
  const { signal, onProgress, weights = defaults.weights, ...settings } = checkOptions("inspect", options);
  return once(outside, signal, (client) =>
    withSource(outside, source, { signal }, async (spec, told) => {
      const args = { source: spec, settings, weights };
      const found = await client.call("inspect", args, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
      found.warnings.push(...told);
      return found;
    }),
  );
}

export async function canRun(outside: Outside, source: ModelSource, options: CanRunOptions = {}): Promise<CanRun> {
  const { signal, onProgress, memory, ...settings } = checkOptions("canRun", options);
  return once(outside, signal, (client) =>
    withSource(outside, source, { signal }, (spec) =>
      client.call(
        "canRun",
        { source: spec, settings, memory },
        { signal, ...(onProgress ? { onEvent: onProgress } : {}) },
      ),
    ),
  );
}

/** Makes a call that needs no model, in a worker that ends with the answer. */
export async function once<T>(
  outside: Outside,
  signal: AbortSignal | undefined,
  ask: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client(outside.spawnEngine());
  try {
    return await ask(client);
  } finally {
    const ended = client.close(closed());
    if (!signal?.aborted) await ended;
  }
}

/** What crosses from the engine has a buffer of its own. */
type Rows = Float32Array<ArrayBuffer>[];

const closed = () => new EngineError("Closed", "the model is closed");

export class LoadedModel implements Model {
  readonly info: ModelInfo;
  readonly #client: Client;
  readonly #rules: SourceRules;
  readonly #caller: Caller;
  #sessions = 0;
  #adapters: readonly AdapterInfo[] = [];

  constructor(client: Client, info: ModelInfo, rules: SourceRules & Pick<Outside, "frame"> = { base: null }) {
    this.#client = client;
    this.#rules = rules;
    this.#caller = { client, frame: rules.frame, fresh: () => ++this.#sessions };
    this.info = info;
  }

  generate(prompt: Prompt, options: GenerateOptions & CompletionOptions = {}): Generation {
    return generate(this.#caller, null, prompt, options);
  }

  chat(messages: readonly ChatMessage[], options: ChatOptions & CompletionOptions = {}): Generation {
    return chat(this.#caller, null, checkMessages("chat", messages), options);
  }

  async renderChat(messages: readonly ChatMessage[], options: RenderOptions = {}): Promise<string> {
    return (await this.#rendered("renderChat", messages, options)).text;
  }

  async countTokens(prompt: string | readonly ChatMessage[], options: CountOptions = {}): Promise<number> {
    return (await this.#ids("countTokens", prompt, options)).length;
  }

  tokenize(prompt: string | readonly ChatMessage[], options: TokenizeOptions = {}): Promise<number[]> {
    return this.#ids("tokenize", prompt, options);
  }

  async #ids(name: "countTokens" | "tokenize", prompt: string | readonly ChatMessage[], given: CountOptions) {
    if (typeof prompt !== "string") return (await this.#rendered(name, prompt, given)).ids;
    const { addSpecial = defaults.addSpecial } = checkOptions(name, given);
    return this.#client.call("tokenize", { text: prompt, addSpecial });
  }

  #rendered(name: "renderChat" | "countTokens" | "tokenize", messages: readonly ChatMessage[], given: CountOptions) {
    const { addGenerationPrompt = defaults.addGenerationPrompt, ...options } = checkOptions(name, given);
    const prompt = chatPrompt(name, checkMessages(name, messages), options);
    return this.#client.call("renderChat", { prompt, addGenerationPrompt });
  }

  get adapters(): readonly AdapterInfo[] {
    return this.#adapters;
  }

  async loadAdapter(source: ModelSource, options: AdapterOptions = {}): Promise<AdapterInfo> {
    const { signal, ...settings } = checkOptions("loadAdapter", options);
    // An adapter that was loaded after the abort is unloaded.
    const onLate = ({ name }: AdapterInfo) => void this.#client.call("unloadAdapter", { name }).catch(() => {});
    const info = await withSource(this.#rules, source, { signal, cache: settings.cache }, (spec) =>
      this.#client.call("loadAdapter", { source: spec, settings }, { signal, onLate }),
    );
    this.#adapters = [...this.#adapters, info];
    return info;
  }

  async unloadAdapter(name: string): Promise<void> {
    await this.#client.call("unloadAdapter", { name: checkText("unloadAdapter", name, "name") });
    this.#adapters = this.#adapters.filter((adapter) => adapter.name !== name);
  }

  session(options: SessionOptions = {}): Session {
    const { adapters } = checkOptions("session", options);
    if (this.#client.over) throw this.#client.over;
    return new OpenSession(this.#caller, adapters);
  }

  async restoreSession(bytes: Uint8Array | ArrayBuffer, options: SessionOptions = {}): Promise<Session> {
    const { adapters } = checkOptions("restoreSession", options);
    return new OpenSession(this.#caller, adapters).restore(bytes);
  }

  async configure(options: BatchingOptions): Promise<void> {
    const given = checkOptions("configure", options);
    this.info.maxSequences = await this.#client.call("configure", given);
  }

  async warmup(): Promise<void> {
    await this.#client.call("warmup", {});
  }

  async status(): Promise<ModelStatus> {
    return this.#client.call("status", {});
  }

  async health(options: HealthOptions = {}): Promise<Health> {
    const { signal, ...given } = checkOptions("health", options);
    return this.#client.call("health", given, { signal });
  }

  async statistics(): Promise<Statistics> {
    return this.#client.call("statistics", {});
  }

  async metrics(options: MetricsOptions = {}): Promise<string> {
    const { format = defaults.format, dialect = defaults.dialect } = checkOptions("metrics", options);
    return this.#client.call("metrics", { format, dialect });
  }

  async logits(ids: readonly number[], options: LogitsOptions = {}): Promise<Rows> {
    const { all = defaults.all, adapters, signal } = checkOptions("logits", options);
    return this.#client.call("logits", { ids: checkIds("logits", ids), all, adapters }, { signal }) as Promise<Rows>;
  }

  async embed(texts: readonly Prompt[], options: EmbedOptions = {}): Promise<Rows> {
    const { pooling, normalize = defaults.normalize, adapters, signal } = checkOptions("embed", options);
    const each = checkTexts("embed", texts);
    return this.#client.call("embed", { texts: each, pooling, normalize, adapters }, { signal }) as Promise<Rows>;
  }

  async perplexity(text: string, options: PerplexityOptions = {}): Promise<Perplexity> {
    const { window = defaults.window, adapters, signal } = checkOptions("perplexity", options);
    return this.#client.call("perplexity", { text: checkText("perplexity", text), window, adapters }, { signal });
  }

  async detokenize(ids: readonly number[], options: DetokenizeOptions = {}): Promise<string> {
    const { special = defaults.special } = checkOptions("detokenize", options);
    return this.#client.call("detokenize", { ids: checkIds("detokenize", ids), special });
  }

  async promptLogprobs(ids: readonly number[], options: PromptLogprobsOptions = {}): Promise<TokenLogprobs[]> {
    const { top = defaults.top, adapters, signal } = checkOptions("promptLogprobs", options);
    const args = { ids: checkIds("promptLogprobs", ids), logprobs: top, adapters };
    return this.#client.call("promptLogprobs", args, { signal });
  }

  async tokenizerInfo(): Promise<TokenizerInfo> {
    return this.#client.call("tokenizerInfo", {});
  }

  async tokenBytes(ids: readonly number[]): Promise<TokenBytes[]> {
    return this.#client.call("tokenBytes", { ids: checkIds("tokenBytes", ids) });
  }

  get lost(): Promise<EngineError> {
    return this.#client.lost;
  }

  async close(): Promise<void> {
    await this.#client.close(closed());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
