/** The public objects, over calls to the engine's worker. */

import {
  checkCount,
  checkIds,
  checkMessages,
  checkOptions,
  checkText,
  checkTexts,
  defaults,
  forWorker,
} from "../options/options.ts";
import { toFormatSpec } from "../options/response_format.ts";
import { Receiver } from "../rpc/backpressure.ts";
import { Client } from "../rpc/client.ts";
import type { WorkerPort } from "../rpc/port.ts";
import type { ChatPrompt, ChooseEvent, GenerateSettings, PromptSpec } from "../rpc/protocol.ts";
import { hasAddress, type SpecRules, toSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type {
  AdapterInfo,
  AdapterOptions,
  CanRun,
  ChatMessage,
  ChatOptions,
  CompletionOptions,
  Description,
  DetokenizeOptions,
  EmbedOptions,
  GenerateOptions,
  Generation,
  InspectOptions,
  LoadOptions,
  LogitsOptions,
  LogitsProcessor,
  Model,
  ModelInfo,
  ModelSource,
  ModelStatus,
  Perplexity,
  PerplexityOptions,
  Piece,
  Prompt,
  PromptLogprobsOptions,
  RenderedChat,
  Session,
  SessionOptions,
  TemplateOptions,
  TokenBytes,
  TokenizeOptions,
  TokenizerInfo,
  TokenLogprobs,
} from "../types/index.ts";
import { together } from "./completions.ts";
import { type Feed, GenerationStream } from "./generation.ts";

/** What the public objects need from their runtime. The entry files provide it. */
export interface Outside extends SpecRules {
  spawnEngine(): WorkerPort;
  /** Asks the runtime to keep the storage when space is short. */
  persist?(): void;
}

export async function load(outside: Outside, source: ModelSource, options: LoadOptions = {}): Promise<Model> {
  const { signal, onProgress, ...settings } = checkOptions("load", options);
  const info = (client: Client) => {
    const spec = toSpec(source, outside);
    if (settings.cache !== false && hasAddress(spec)) outside.persist?.();
    return client.call("load", { source: spec, settings }, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
  };
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
  return once(outside, signal, (client) => {
    const args = { source: toSpec(source, outside), settings, weights };
    return client.call("inspect", args, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
  });
}

export async function canRun(outside: Outside, source: ModelSource, options: LoadOptions = {}): Promise<CanRun> {
  const { signal, onProgress, ...settings } = checkOptions("canRun", options);
  return once(outside, signal, (client) => {
    const args = { source: toSpec(source, outside), settings };
    return client.call("canRun", args, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
  });
}

/** Makes a call that needs no model, in a worker that ends with the answer. */
async function once<T>(
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

const closed = () => new EngineError("Closed", "the model is closed");

export class LoadedModel implements Model {
  readonly info: ModelInfo;
  readonly #client: Client;
  readonly #rules: SpecRules;
  #sessions = 0;
  readonly #number = () => ++this.#sessions;
  #adapters: readonly AdapterInfo[] = [];

  constructor(client: Client, info: ModelInfo, rules: SpecRules = { base: null }) {
    this.#client = client;
    this.#rules = rules;
    this.info = info;
  }

  generate(prompt: Prompt, options: GenerateOptions & CompletionOptions = {}): Generation {
    return generate(this.#client, null, prompt, options);
  }

  chat(messages: readonly ChatMessage[], options: ChatOptions & CompletionOptions = {}): Generation {
    return chat(this.#client, null, messages, options);
  }

  get adapters(): readonly AdapterInfo[] {
    return this.#adapters;
  }

  async loadAdapter(source: ModelSource, options: AdapterOptions = {}): Promise<AdapterInfo> {
    const { signal, ...settings } = checkOptions("loadAdapter", options);
    const args = { source: toSpec(source, this.#rules), settings };
    // An adapter that was loaded after the abort is unloaded.
    const onLate = ({ name }: AdapterInfo) => void this.#client.call("unloadAdapter", { name }).catch(() => {});
    const info = await this.#client.call("loadAdapter", args, { signal, onLate });
    this.#adapters = [...this.#adapters, info];
    return info;
  }

  async unloadAdapter(name: string): Promise<void> {
    await this.#client.call("unloadAdapter", { name: checkText("unloadAdapter", name, "name") });
    this.#adapters = this.#adapters.filter((adapter) => adapter.name !== name);
  }

  session(): Session;
  session(options: SessionOptions): Promise<Session>;
  session(options?: SessionOptions): Session | Promise<Session> {
    if (options !== undefined) return this.#made(options);
    if (this.#client.over) throw this.#client.over;
    return new OpenSession(this.#client, this.#number);
  }

  async #made(options: SessionOptions): Promise<Session> {
    const given = checkOptions("session", options);
    return new OpenSession(this.#client, this.#number).made(given);
  }

  async warmup(): Promise<void> {
    await this.#client.call("warmup", {});
  }

  async status(): Promise<ModelStatus> {
    return this.#client.call("status", {});
  }

  async logits(ids: readonly number[], options: LogitsOptions = {}): Promise<Float32Array[]> {
    const { all = defaults.all, adapters, signal } = checkOptions("logits", options);
    return this.#client.call("logits", { ids: checkIds("logits", ids), all, adapters }, { signal });
  }

  async embed(texts: readonly Prompt[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    const {
      pooling = defaults.pooling,
      normalize = defaults.normalize,
      adapters,
      signal,
    } = checkOptions("embed", options);
    const each = checkTexts("embed", texts);
    return this.#client.call("embed", { texts: each, mean: pooling === "mean", normalize, adapters }, { signal });
  }

  async perplexity(text: string, options: PerplexityOptions = {}): Promise<Perplexity> {
    const { window = defaults.window, adapters, signal } = checkOptions("perplexity", options);
    return this.#client.call("perplexity", { text: checkText("perplexity", text), window, adapters }, { signal });
  }

  async tokenize(text: string, options: TokenizeOptions = {}): Promise<number[]> {
    const { addSpecial = defaults.addSpecial } = checkOptions("tokenize", options);
    return this.#client.call("tokenize", { text: checkText("tokenize", text), addSpecial });
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

  async applyChatTemplate(messages: readonly ChatMessage[], options: TemplateOptions = {}): Promise<RenderedChat> {
    const { addGenerationPrompt = true, ...given } = checkOptions("applyChatTemplate", options);
    checkMessages(messages);
    return this.#client.call("applyChatTemplate", {
      prompt: { messages, ...given } as ChatPrompt,
      addGenerationPrompt,
    });
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
}

class OpenSession implements Session {
  readonly #client: Client;
  readonly #number: number;
  readonly #fresh: () => number;
  #tokens: readonly number[] = [];
  #closed = false;
  /** Settles when the tokens are known after a generation that failed. */
  #asked: Promise<void> = Promise.resolve();

  /** @param fresh returns a number that no other session of the model has */
  constructor(client: Client, fresh: () => number) {
    this.#client = client;
    this.#number = fresh();
    this.#fresh = fresh;
  }

  async made({ restore, adapters }: SessionOptions): Promise<Session> {
    const args = { session: this.#number, ...(restore && { bytes: restore }), ...(adapters && { adapters }) };
    this.#tokens = await this.#client.call("makeSession", args);
    return this;
  }

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return generate(this.#client, this.#open(), prompt, options);
  }

  chat(messages: readonly ChatMessage[], options: ChatOptions = {}): Generation {
    return chat(this.#client, this.#open(), messages, options);
  }

  async fork(): Promise<Session> {
    const fork = new OpenSession(this.#client, this.#fresh);
    fork.#tokens = await this.#client.call("forkSession", { session: this.#open().session, as: fork.#number });
    return fork;
  }

  async rewind(count: number): Promise<void> {
    await this.#asked;
    checkCount("rewind", count, this.#tokens.length);
    this.#tokens = await this.#client.call("rewindSession", { session: this.#open().session, count });
  }

  async save(): Promise<Uint8Array> {
    return this.#client.call("saveSession", { session: this.#open().session });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    if (!this.#client.over) await this.#client.call("closeSession", { session: this.#number });
  }

  #open(): Conversation {
    if (this.#closed) throw new EngineError("Closed", "the session is closed");
    const session = this.#number;
    const onHeld = (held: readonly number[]) => {
      this.#tokens = held;
    };
    const onFailed = () => {
      if (!this.#closed) this.#asked = this.#client.call("heldSession", { session }).then(onHeld, () => {});
    };
    return { session, onHeld, onFailed };
  }
}

interface Conversation {
  session: number;
  /** Receives the ids that the session holds after a generation. */
  onHeld(held: readonly number[]): void;
  /** The generation failed: the ids that the session holds are not known. */
  onFailed(): void;
}

function generate(
  client: Client,
  conversation: Conversation | null,
  prompt: Prompt,
  given: GenerateOptions & CompletionOptions,
): Generation {
  const options = checkOptions(conversation ? "generate" : "complete", given, "generate");
  const { addSpecial = defaults.addSpecial } = options;
  const spec =
    typeof prompt === "string"
      ? { text: prompt, addSpecial }
      : { ids: checkIds("generate", prompt, "prompt", "a text or a list of token ids") };
  return start(client, conversation, spec, options);
}

function chat(
  client: Client,
  conversation: Conversation | null,
  messages: readonly ChatMessage[],
  given: ChatOptions & CompletionOptions,
): Generation {
  const options = checkOptions(conversation ? "chat" : "completeChat", given, "chat");
  checkMessages(messages);
  const { tools, toolChoice = defaults.toolChoice, templateOptions, parseSpecialTokens } = options;
  const spec: PromptSpec = { messages: messages.map((message) => ({ ...message })) };
  if (tools && toolChoice !== "none") spec.tools = [...tools];
  if (toolChoice !== "auto" && toolChoice !== "none") {
    const option = "toolChoice";
    const reason = options.responseFormat ? "and responseFormat are two formats" : "needs tools";
    if (options.responseFormat || !tools)
      throw new EngineError("InvalidArgument", `chat: ${option} ${reason}`, { option });
    spec.toolChoice = toolChoice;
  }
  if (templateOptions) spec.templateOptions = { ...templateOptions };
  if (parseSpecialTokens) spec.parseSpecialTokens = true;
  return start(client, conversation, spec, options);
}

function start(
  client: Client,
  conversation: Conversation | null,
  prompt: PromptSpec,
  options: GenerateOptions & CompletionOptions,
): Generation {
  const {
    stop = [],
    ignoreEos = defaults.ignoreEos,
    onContextFull = defaults.onContextFull,
    responseFormat,
    logitsProcessor,
    signal,
    n = defaults.n,
    adapters,
  } = options;
  const settings: GenerateSettings = {
    ...forWorker(options),
    stop: typeof stop === "string" ? [stop] : [...stop],
    ignoreEos,
    onContextFull,
    ...(responseFormat ? { responseFormat: toFormatSpec(responseFormat) } : {}),
    ...(adapters ? { adapters } : {}),
    sanitize: options.sanitize ?? false,
    logitsProcessor: logitsProcessor !== undefined,
  };
  const session = conversation?.session ?? null;
  const begin = (settings: GenerateSettings, push: (pieces: Piece[]) => void): Feed => {
    const receiver = new Receiver();
    const onEvent = (event: Piece[] | ChooseEvent, id: number) => {
      if (!Array.isArray(event)) return choose(client, id, event, logitsProcessor!);
      push(event);
      receiver.received(event.length);
      client.idle(id, receiver.idle);
    };
    const { id, result } = client.start("generate", { session, prompt, settings }, { signal, onEvent });
    const finished = result.then(
      (ended) => {
        conversation?.onHeld(ended.held);
        return ended.finished;
      },
      (reason) => {
        conversation?.onFailed();
        throw reason;
      },
    );
    const onRead = (pieces: number) => {
      client.read(id, pieces);
      receiver.read(pieces);
      client.idle(id, receiver.idle);
    };
    return { finished, stop: () => client.stop(id), read: onRead, signal };
  };
  return new GenerationStream((push) => (n === 1 ? begin(settings, push) : together(n, settings, begin, push)));
}

/** Lets the caller's function change the logits of a generation that waits for them. */
async function choose(client: Client, id: number, { logits, tokens }: ChooseEvent, processor: LogitsProcessor) {
  const { length } = logits;
  const changed = (await processor(logits, tokens)) ?? logits;
  // An array that was transferred elsewhere has length 0.
  if (!(changed instanceof Float32Array) || changed.length !== length) {
    const expected = `nothing or a Float32Array of ${length} values`;
    const message = `logitsProcessor must answer ${expected}, and keep what it was given in place`;
    throw new EngineError("InvalidArgument", message, { option: "logitsProcessor", expected });
  }
  client.supply(id, changed, changed === logits ? [logits.buffer as ArrayBuffer] : []);
}
