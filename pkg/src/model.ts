/** The public objects, over calls to the engine's worker. */

import { together } from "./choices.ts";
import { toFormatSpec } from "./constrain/format.ts";
import { EngineError } from "./errors.ts";
import { type Feed, GenerationStream } from "./generation.ts";
import { checkAll, checkIds, checkMessages, checkOptions, checkText, forEngine, integer } from "./options.ts";
import type { WorkerPort } from "./platform/port.ts";
import { Client } from "./rpc/client.ts";
import type { ChooseEvent, GenerateSettings, PromptSpec } from "./rpc/protocol.ts";
import { hasAddress, type SpecRules, toSpec } from "./source/spec.ts";
import { safe } from "./text/safe.ts";
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
  Session,
  SessionOptions,
  TokenizeOptions,
} from "./types.ts";

/** What the entries bring from their runtime. */
export interface Outside extends SpecRules {
  spawnEngine(): WorkerPort;
  /** Asks for storage that lasts. */
  persist?(): void;
}

export async function load(outside: Outside, source: ModelSource, options: LoadOptions = {}): Promise<Model> {
  checkOptions("load", options);
  const { signal, onProgress, ...settings } = options;
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
    // Who gives up is told at once; who tries again finds the memory free.
    if (!signal?.aborted) await ended;
    throw error;
  }
}

export async function inspect(
  outside: Outside,
  source: ModelSource,
  options: InspectOptions = {},
): Promise<Description> {
  checkOptions("inspect", options);
  const { signal, onProgress, weights = false, ...settings } = options;
  return once(outside, (client) => {
    const args = { source: toSpec(source, outside), settings, weights };
    return client.call("inspect", args, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
  });
}

export async function canRun(outside: Outside, source: ModelSource, options: LoadOptions = {}): Promise<CanRun> {
  checkOptions("canRun", options);
  const { signal, onProgress, ...settings } = options;
  return once(outside, (client) => {
    const args = { source: toSpec(source, outside), settings };
    return client.call("canRun", args, { signal, ...(onProgress ? { onEvent: onProgress } : {}) });
  });
}

/** A question that needs no model: its worker ends with the answer. */
async function once<T>(outside: Outside, ask: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(outside.spawnEngine());
  try {
    return await ask(client);
  } finally {
    await client.close(closed());
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
    checkOptions("loadAdapter", options);
    const { signal, ...settings } = options;
    const info = await this.#client.call("loadAdapter", { source: toSpec(source, this.#rules), settings }, { signal });
    this.#adapters = [...this.#adapters, info];
    return info;
  }

  async unloadAdapter(name: string): Promise<void> {
    await this.#client.call("unloadAdapter", { name: checkText("unloadAdapter", name) });
    this.#adapters = this.#adapters.filter((adapter) => adapter.name !== name);
  }

  session(): Session;
  session(options: SessionOptions): Promise<Session>;
  session(options?: SessionOptions): Session | Promise<Session> {
    if (this.#client.over) throw this.#client.over;
    checkOptions("session", options);
    const session = new OpenSession(this.#client, this.#number);
    return options ? session.made(options) : session;
  }

  async warmup(): Promise<void> {
    await this.#client.call("warmup", {});
  }

  async status(): Promise<ModelStatus> {
    return this.#client.call("status", {});
  }

  async logits(ids: readonly number[], options: LogitsOptions = {}): Promise<Float32Array[]> {
    checkOptions("logits", options);
    const { all = false, adapters, signal } = options;
    return this.#client.call("logits", { ids: checkIds("logits", ids), all, adapters }, { signal });
  }

  async embed(texts: readonly Prompt[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    checkOptions("embed", options);
    const { pooling = "mean", normalize = true, adapters, signal } = options;
    if (!Array.isArray(texts)) throw new EngineError("InvalidArgument", "embed: texts must be a list of texts");
    const each = texts.map((text) => (typeof text === "string" ? text : checkIds("embed", text)));
    return this.#client.call("embed", { texts: each, mean: pooling === "mean", normalize, adapters }, { signal });
  }

  async perplexity(text: string, options: PerplexityOptions = {}): Promise<Perplexity> {
    checkOptions("perplexity", options);
    const { window = 512, adapters, signal } = options;
    return this.#client.call("perplexity", { text: checkText("perplexity", text), window, adapters }, { signal });
  }

  async tokenize(text: string, options: TokenizeOptions = {}): Promise<number[]> {
    checkOptions("tokenize", options);
    return this.#client.call("tokenize", { text: checkText("tokenize", text), addSpecial: options.addSpecial ?? true });
  }

  async detokenize(ids: readonly number[], options: DetokenizeOptions = {}): Promise<string> {
    checkOptions("detokenize", options);
    return this.#client.call("detokenize", { ids: checkIds("detokenize", ids), special: options.special ?? true });
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

  /** `fresh` gives numbers that no other session of the model has. */
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
    checkAll("rewind", { count: integer(0, this.#tokens.length) }, { count });
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
    return { session: this.#number, onHeld: (held) => (this.#tokens = held) };
  }
}

interface Conversation {
  session: number;
  /** Hears of the ids that the session holds after a generation. */
  onHeld(held: number[]): void;
}

function generate(
  client: Client,
  conversation: Conversation | null,
  prompt: Prompt,
  options: GenerateOptions & CompletionOptions,
): Generation {
  checkOptions(conversation ? "generate" : "complete", options);
  const { addSpecial = true } = options;
  const clean = cleaner(options);
  const spec = typeof prompt === "string" ? { text: clean(prompt), addSpecial } : { ids: checkIds("generate", prompt) };
  return start(client, conversation, spec, options);
}

function chat(
  client: Client,
  conversation: Conversation | null,
  messages: readonly ChatMessage[],
  options: ChatOptions & CompletionOptions,
): Generation {
  checkOptions(conversation ? "chat" : "completeChat", options);
  checkMessages(messages);
  const { tools, toolChoice = "auto", templateOptions } = options;
  const clean = cleaner(options);
  const spec: PromptSpec = {
    messages: messages.map((one) => ({ ...one, ...(one.content ? { content: clean(one.content) } : {}) })),
  };
  if (tools && toolChoice !== "none") spec.tools = [...tools];
  if (toolChoice !== "auto" && toolChoice !== "none") {
    const option = "toolChoice";
    const reason = options.format ? "and format are two formats" : "needs tools";
    if (options.format || !tools) throw new EngineError("InvalidArgument", `chat: ${option} ${reason}`, { option });
    spec.toolChoice = toolChoice;
  }
  if (templateOptions) spec.templateOptions = { ...templateOptions };
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
    ignoreEos = false,
    onContextFull = "stop",
    format,
    logitsProcessor,
    signal,
    n = 1,
    adapters,
  } = options;
  const settings: GenerateSettings = {
    ...forEngine(options),
    stop: typeof stop === "string" ? [stop] : [...stop],
    ignoreEos,
    onContextFull,
    ...(format ? { format: toFormatSpec(format) } : {}),
    ...(adapters ? { adapters } : {}),
    logitsProcessor: logitsProcessor !== undefined,
  };
  const session = conversation?.session ?? null;
  const begin = (settings: GenerateSettings, push: (pieces: Piece[]) => void): Feed => {
    const onEvent = (event: Piece[] | ChooseEvent, id: number) =>
      Array.isArray(event) ? push(event) : void choose(client, id, event, logitsProcessor!);
    const { id, result } = client.start("generate", { session, prompt, settings }, { signal, onEvent });
    const finished = result.then((ended) => {
      conversation?.onHeld(ended.held);
      return ended.finished;
    });
    return { finished, stop: () => client.stop(id), read: (pieces) => client.read(id, pieces), signal };
  };
  return new GenerationStream((push) => (n === 1 ? begin(settings, push) : together(n, settings, begin, push)));
}

const cleaner =
  ({ preprocess }: GenerateOptions) =>
  (text: string) =>
    preprocess === "safe" && typeof text === "string" ? safe(text) : text;

/** Has the caller's function change the logits of a generation that waits for them. */
async function choose(client: Client, id: number, { logits, tokens }: ChooseEvent, processor: LogitsProcessor) {
  try {
    const changed = (await processor(logits, tokens)) ?? logits;
    if (!(changed instanceof Float32Array))
      throw new EngineError("InvalidArgument", "logitsProcessor must answer nothing or a Float32Array", {
        option: "logitsProcessor",
      });
    client.supply(id, changed, changed === logits ? [logits.buffer as ArrayBuffer] : []);
  } catch (error) {
    client.fail(id, error);
  }
}
