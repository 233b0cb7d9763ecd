/** The engine's end: answers calls on its port. One host holds one model. */

import { Constrainer, type Constraint } from "../constrain/constraint.ts";
import type { FormatSpec } from "../options/format.ts";
import type { Port } from "../rpc/port.ts";
import {
  type Call,
  type Control,
  type ErrorData,
  type GenerateSettings,
  type PromptSpec,
  type Reply,
  UNREAD,
  type VerbName,
  type Verbs,
} from "../rpc/protocol.ts";
import { callFormat, findCalls } from "../text/tools.ts";
import { EngineError } from "../types/errors.ts";
import type { AdapterUse, Finished, FinishReason, ModelStatus } from "../types/index.ts";
import { compile } from "../wasm/load.ts";
import { Adapters } from "./adapters.ts";
import { Answer } from "./answer.ts";
import type { EngineEvent, EngineWork } from "./events.ts";
import { flat } from "./flat.ts";
import { ask, remote } from "./hooks.ts";
import { canRun, inspect, type LoadContext, type Loaded, load } from "./load.ts";
import { EngineLoop, type Listener } from "./loop.ts";
import { measure, roofline, trace } from "./measure.ts";
import type { Platform } from "./platform.ts";
import { Timeline } from "./timeline.ts";

/** What one call may do while it runs. */
interface CallContext<V extends VerbName> {
  signal: AbortSignal;
  /** Set by a generation that can be ended early … */
  onStop: (() => void) | null;
  /** That it was ended before it began. */
  stopped?: boolean;
  /** … waits for its reader … */
  onRead: ((pieces: number) => void) | null;
  /** … and for logits to choose from. */
  onSupply: ((logits: Float32Array) => void) | null;
  send(event: Verbs[V]["event"], transfer?: Transferable[]): void;
}

type Handlers = {
  [V in VerbName]: (
    args: Verbs[V]["args"],
    context: CallContext<V>,
  ) => Verbs[V]["result"] | Promise<Verbs[V]["result"]>;
};

interface Running {
  abort: AbortController;
  context: CallContext<VerbName>;
}

export function serve(platform: Platform, port: Port): void {
  const calls = new Map<number, Running>();
  const post = (reply: Reply, transfer?: Transferable[]) => port.post(reply, transfer);
  const timeline = new Timeline((spans) => post({ spans }));
  const host = new Host(platform, timeline, (error) => post({ fatal: toData(error) }));

  port.onmessage = (message) => {
    const said = message as Call | Control;
    if (!("control" in said)) return void answer(said);
    const running = calls.get(said.id);
    if (said.control === "ping") return post({ id: said.id, event: null });
    if (said.control === "stop") running?.context.onStop?.();
    else if (said.control === "read") running?.context.onRead?.(said.pieces);
    else if (said.control === "supply") running?.context.onSupply?.(said.logits);
    else running?.abort.abort();
  };

  async function answer({ id, verb, args }: Call): Promise<void> {
    const abort = new AbortController();
    const context: CallContext<VerbName> = {
      signal: abort.signal,
      onStop: null,
      onRead: null,
      onSupply: null,
      send: (event, transfer) => post({ id, event }, transfer),
    };
    calls.set(id, { abort, context });
    try {
      const handler = host.handlers[verb] as (args: unknown, context: unknown) => unknown;
      const result = await handler(args, context);
      post({ id, result }, transfers(result));
    } catch (error) {
      post({ id, error: toData(error) });
    } finally {
      calls.delete(id);
    }
  }
}

/** Rows of logits and saved sessions are large, and nobody here needs them any more. */
function transfers(result: unknown): Transferable[] {
  if (result instanceof Uint8Array) return [result.buffer as ArrayBuffer];
  return Array.isArray(result) && result[0] instanceof Float32Array
    ? result.map((row: Float32Array) => row.buffer as ArrayBuffer)
    : [];
}

function toData(error: unknown): ErrorData {
  const { code, message, detail, stack } = (error ?? {}) as ErrorData;
  if (typeof code === "string" && typeof message === "string") {
    return { code, message, ...(detail ? { detail } : {}), ...(stack ? { stack } : {}) };
  }
  return { message: error instanceof Error ? error.message : String(error), ...(stack ? { stack } : {}) };
}

/** Milliseconds. Compilers in the background take about as long for all that a token needs. */
const WARMUP = 300;

/** Defaults where neither the caller nor the model says anything. */
const SAMPLING = { temperature: 0.7, topK: 40, topP: 0.95 };

interface Settle<T> {
  resolve(value: T): void;
  /** Ends the engine's work on it, with a value … */
  early(value: () => T): void;
  /** … or with an error. */
  fail(error: unknown): void;
  /** Lets it wait for its reader, or go on. */
  pause(paused: boolean): void;
}

interface Model extends Loaded {
  loop: EngineLoop;
  adapters: Adapters;
  /** Requests computed together. */
  places: number;
}

type SixNumbers = [number, number, number, number, number, number];

class Host {
  readonly handlers: Handlers;
  readonly #platform: Platform;
  readonly #timeline: Timeline;
  readonly #onDeath: (error: unknown) => void;
  #model: Model | null = null;
  #constrainer: Constrainer | null = null;
  /** Engine sessions by the caller's numbers. */
  readonly #sessions = new Map<number, number>();
  /** What ends the request of an engine's session. */
  readonly #underWay = new Map<number, (error: unknown) => void>();
  /** Logits that say which model this is, once someone has asked. */
  #markRow: Float32Array | null = null;

  constructor(platform: Platform, timeline: Timeline, onDeath: (error: unknown) => void) {
    this.#platform = platform;
    this.#timeline = timeline;
    this.#onDeath = onDeath;
    this.handlers = {
      load: ({ source, settings }, context) => this.#load(source, settings, context),
      inspect: ({ source, settings, weights }, context) =>
        inspect(source, settings, weights, this.#loadContext(context)),
      canRun: ({ source, settings }, context) => canRun(source, settings, this.#loadContext(context)),
      generate: ({ session, prompt, settings }, context) => this.#generate(session, prompt, settings, context),
      closeSession: ({ session }) => this.#closeSession(session),
      forkSession: ({ session, as }) => this.#keep(as, this.#loaded.engine.fork(this.#session(session))),
      rewindSession: ({ session, count }) => this.#rewind(session, count),
      heldSession: ({ session }) => this.#held(session),
      saveSession: ({ session }, context) => this.#save(session, context),
      makeSession: (args, context) => this.#make(args, context),
      loadAdapter: ({ source, settings }, context) =>
        this.#loaded.adapters.load(source, settings, this.#loadContext(context)),
      unloadAdapter: ({ name }) => this.#loaded.adapters.unload(name),
      warmup: (_, context) => this.#warmup(context),
      status: () => this.#status(),
      logits: ({ ids, all, adapters }, context) => this.#logits(ids, all, context, adapters),
      embed: (args, context) => this.#embed(args, context),
      perplexity: (args, context) => this.#perplexity(args, context),
      tokenize: ({ text, addSpecial }) => this.#loaded.text.tokenizer.encode(text, { addSpecial }),
      detokenize: ({ ids, special }) => this.#loaded.text.tokenizer.decode(ids, { special }),
      measure: (args, { signal }) => measure(this.#loaded, args, this.#platform, signal),
      trace: (args) => trace(this.#loaded, args),
      roofline: (args, { signal }) => roofline(args, { platform, signal, onDeath }),
    };
  }

  get #loaded(): Model {
    if (!this.#model) throw new EngineError("Closed", "no model is loaded");
    return this.#model;
  }

  #loadContext(context: CallContext<"load" | "inspect" | "canRun" | "loadAdapter">): LoadContext {
    const { signal, send } = context;
    return { platform: this.#platform, signal, onProgress: send as LoadContext["onProgress"], onDeath: this.#onDeath };
  }

  async #load(
    source: Verbs["load"]["args"]["source"],
    settings: Verbs["load"]["args"]["settings"],
    context: CallContext<"load">,
  ) {
    const timeline = settings.spans ? this.#timeline : undefined;
    const begun = performance.now();
    try {
      const loaded = await load(source, settings, { ...this.#loadContext(context), timeline });
      const loop = new EngineLoop(loaded.engine, this.#platform.turn, this.#onDeath, timeline);
      this.#model = { ...loaded, loop, adapters: new Adapters(loaded), places: settings.maxSequences ?? 8 };
      return loaded.info;
    } finally {
      timeline?.add("load", "load", begun);
      timeline?.flush();
    }
  }

  async #generate(
    session: number | null,
    prompt: PromptSpec,
    settings: GenerateSettings,
    context: CallContext<"generate">,
  ) {
    const { engine, text, loop } = this.#loaded;
    const own = session === null;
    const id = own ? engine.open() : this.#session(session);
    let constraint: Constraint | null = null;
    try {
      const format = settings.format ?? this.#calls(prompt);
      if (format) constraint = await this.#constrain(format, !settings.ignoreEos, context);
      context.signal.throwIfAborted();
      if (!own && this.#sessions.get(session) !== id) throw new EngineError("Closed", "the session is closed");
      this.#adapt(id, settings.adapters);
      const ids = this.#promptIds(prompt, id);
      const { finished, surplus } = await this.#run(loop, id, ids, settings, text, constraint, context);
      if ("tools" in prompt && prompt.tools) {
        Object.assign(finished, findCalls(text.tokenizer.decode(finished.tokens), prompt.tools));
      }
      if (own) return { finished, held: [] };
      engine.truncate(id, engine.tokens(id).length - surplus);
      return { finished, held: [...engine.tokens(id)] };
    } finally {
      constraint?.free();
      if (own) engine.close(id);
    }
  }

  #constrain(format: FormatSpec, mayEnd: boolean, context: CallContext<"generate">): Promise<Constraint> {
    const { text, info } = this.#loaded;
    this.#constrainer ??= new Constrainer(text.tokenizer, info.vocab, text.ends, () => constrainModule(this.#platform));
    context.onStop = () => (context.stopped = true);
    return this.#constrainer.start(format, mayEnd);
  }

  #calls(prompt: PromptSpec): FormatSpec | null {
    if (!("toolChoice" in prompt) || !prompt.toolChoice) return null;
    const { template, tokenizer } = this.#loaded.text;
    return callFormat(template.forTools, prompt.tools ?? [], prompt.toolChoice, tokenizer);
  }

  /** A session that is told nothing keeps what it has. */
  #adapt(session: number, uses: readonly AdapterUse[] | undefined): void {
    const { engine, adapters } = this.#loaded;
    if (uses) engine.adapt(session, adapters.flat(uses));
  }

  #session(number: number): number {
    const { engine } = this.#loaded;
    const known = this.#sessions.get(number);
    if (known !== undefined) return known;
    const id = engine.open();
    this.#sessions.set(number, id);
    return id;
  }

  #held(number: number): number[] {
    const id = this.#sessions.get(number);
    return id === undefined ? [] : [...this.#loaded.engine.tokens(id)];
  }

  /** Gives an engine's session the caller's number; answers its ids. */
  #keep(number: number, id: number): number[] {
    this.#sessions.set(number, id);
    return [...this.#loaded.engine.tokens(id)];
  }

  #rewind(number: number, count: number): number[] {
    const { engine } = this.#loaded;
    const id = this.#session(number);
    engine.truncate(id, engine.tokens(id).length - count);
    return [...engine.tokens(id)];
  }

  async #save(session: number, context: CallContext<"saveSession">): Promise<Uint8Array> {
    return this.#loaded.engine.save(this.#session(session), await this.#mark(context));
  }

  async #make(args: Verbs["makeSession"]["args"], context: CallContext<"makeSession">): Promise<number[]> {
    const { session, bytes, adapters: uses = [] } = args;
    const mark = bytes && (await this.#mark(context));
    const { engine, adapters } = this.#loaded;
    if (bytes) return this.#keep(session, engine.restore(bytes, mark!, adapters.flat(uses)));
    const flat = adapters.flat(uses);
    engine.adapt(this.#session(session), flat);
    return [];
  }

  /** What this model computes of some fixed ids, the same in every build and runtime, says which one it is. */
  async #mark(context: CallContext<VerbName>): Promise<Float32Array> {
    const { vocab, contextLength } = this.#loaded.info;
    const count = Math.min(16, vocab, contextLength);
    const ids = Array.from({ length: count }, (_, i) => Math.floor((i * vocab) / count));
    const [row] = this.#markRow ? [this.#markRow] : await this.#logits(ids, false, context);
    this.#markRow = row!;
    return row!;
  }

  #status(): ModelStatus {
    const { engine, memory } = this.#loaded;
    const [running, waiting, paused, cacheTokens, heldTokens, spareTokens] = [...engine.status()] as SixNumbers;
    return { running, waiting, paused, cacheTokens, heldTokens, spareTokens, memoryBytes: memory.buffer.byteLength };
  }

  /**
   * A prompt and some steps, long enough for kernels of both kinds, and again until the runtime's compilers have had time for the
   * functions of a small model too.
   */
  async #warmup(context: CallContext<"warmup">): Promise<null> {
    const { vocab, contextLength } = this.#loaded.info;
    const ids = Array.from({ length: Math.min(32, Math.ceil(contextLength / 2)) }, (_, i) => i % vocab);
    const work: EngineWork = { type: "generate", maxTokens: 8, end: [], full: 0 };
    const until = performance.now() + WARMUP;
    for (let round = 0; round === 0 || (round < 64 && performance.now() < until); round++)
      await this.#once(ids, work, context, () => ({ event() {}, result: () => null }));
    return null;
  }

  #closeSession(number: number): null {
    const id = this.#sessions.get(number);
    this.#sessions.delete(number);
    if (id === undefined) return null;
    this.#underWay.get(id)?.(new EngineError("Closed", "the session is closed"));
    this.#loaded.engine.close(id);
    return null;
  }

  /** The ids to add to a session. A chat says everything anew: what the session already holds of it stays. */
  #promptIds(prompt: PromptSpec, session: number): number[] {
    const { engine, text } = this.#loaded;
    if ("ids" in prompt) return prompt.ids;
    if ("text" in prompt) {
      // Only the beginning of a conversation has a beginning.
      const addSpecial = prompt.addSpecial && engine.tokens(session).length === 0;
      return this.#encode(prompt.text, addSpecial);
    }
    const { messages, tools, templateOptions } = prompt;
    const rendered = text.template.render(messages, {
      tools: tools ?? null,
      ...(templateOptions ? { templateOptions } : {}),
    });
    const ids = this.#encode(rendered, false);
    const held = engine.tokens(session);
    let same = 0;
    while (same < held.length && same < ids.length - 1 && held[same] === ids[same]) same++;
    engine.truncate(session, same);
    return ids.slice(same);
  }

  /** Nobody waits for the tokens of what cannot fit. */
  #encode(text: string, addSpecial: boolean): number[] {
    const { tokenizer } = this.#loaded.text;
    const { contextLength } = this.#loaded.info;
    const most = contextLength * tokenizer.longest;
    if (text.length <= most) return tokenizer.encode(text, { addSpecial });
    const message = `the prompt is a text of length ${text.length}; the context's ${contextLength} tokens hold at most ${most}`;
    throw new EngineError("ContextFull", message, { expected: `at most ${most}`, found: String(text.length) });
  }

  #run(
    loop: EngineLoop,
    session: number,
    ids: number[],
    settings: GenerateSettings,
    text: Loaded["text"],
    constraint: Constraint | null,
    context: CallContext<"generate">,
  ): Promise<{ finished: Finished; surplus: number }> {
    const { stop, ignoreEos, onContextFull, maxTokens, seed = randomSeed(), ...rest } = settings;
    const { format, logitsProcessor, preset, adapters, ...sampling } = rest;
    const chosen = { ...SAMPLING, ...(preset === "none" ? {} : text.sampling), ...defined(sampling), seed };
    const hooks = logitsProcessor ? [remote(context)] : [];
    const work: EngineWork = {
      type: "generate",
      sampling: flat(chosen, text),
      end: ignoreEos ? [] : [...text.ends],
      full: ["stop", "error", "shift"].indexOf(onContextFull),
      hook: constraint !== null || hooks.length > 0,
      ...(maxTokens === undefined ? {} : { maxTokens }),
    };
    const answer = new Answer({
      tokenizer: text.tokenizerOrNull,
      promptTokens: ids,
      stop,
      send: context.send,
    });
    const ended = (reason: FinishReason) => ({ finished: answer.finish(reason), surplus: answer.surplus });
    if (context.stopped) return Promise.resolve(ended("abort"));
    return this.#request(loop, session, ids, work, context, (settle) => {
      let read = 0;
      let paused = false;
      const pause = (unread: number) => {
        if (paused ? unread > UNREAD / 2 : unread < UNREAD) return;
        paused = !paused;
        settle.pause(paused);
      };
      const choose = async ({ request, logits }: { request: number; logits: Float32Array }) => {
        if (constraint && !constraint.mask(logits)) return settle.early(() => ended("stop"));
        const changed = await ask(hooks, logits, [...loop.engine.tokens(session)]);
        loop.supply(request, changed);
      };
      context.onStop = () => settle.early(() => ended("abort"));
      context.onRead = (pieces) => {
        read = pieces;
        pause(answer.sent - read);
      };
      return {
        onEvent(event) {
          if (event.type === "prompt") answer.begun(event.tokens, event.cached);
          else if (event.type === "logprobs") answer.note(event);
          else if (event.type === "token" && (answer.token(event.token) || constraint?.accept(event.token)))
            settle.early(() => ended("stop"));
          else if (event.type === "choose") choose(event).catch(settle.fail);
          else if (event.type === "finished") settle.resolve(ended(event.reason as FinishReason));
        },
        onPause() {
          answer.flush();
          pause(answer.sent - read);
        },
      };
    });
  }

  async #logits(
    ids: number[],
    all: boolean,
    context: CallContext<VerbName>,
    adapters?: readonly AdapterUse[],
  ): Promise<Float32Array[]> {
    const make = () => {
      const rows: Float32Array[] = [];
      return { event: (event: EngineEvent) => event.type === "logits" && rows.push(event.logits), result: () => rows };
    };
    return this.#once(ids, { type: "logits", all }, context, make, adapters);
  }

  /** As many at once as the engine computes together. */
  async #embed(args: Verbs["embed"]["args"], context: CallContext<"embed">) {
    const { texts, mean, normalize, adapters } = args;
    const { text, places } = this.#loaded;
    const rows: Float32Array[] = [];
    const make = () => {
      let row: Float32Array = new Float32Array();
      return {
        event: (event: EngineEvent) => {
          if (event.type === "embedded") row = event.embedding;
        },
        result: () => (normalize ? unit(row) : row),
      };
    };
    const one = (ids: number[]) => this.#once(ids, { type: "embed", mean }, context, make, adapters);
    // A lane that fails ends the iterator for all.
    const each = (function* () {
      yield* texts.entries();
    })();
    const lane = async () => {
      for (const [i, from] of each) rows[i] = await one(typeof from === "string" ? text.tokenizer.encode(from) : from);
    };
    await Promise.all(Array.from({ length: Math.min(places, texts.length) }, lane));
    return rows;
  }

  async #perplexity(args: Verbs["perplexity"]["args"], context: CallContext<"perplexity">) {
    const { text, window, adapters } = args;
    const { text: side, info } = this.#loaded;
    const ids = side.tokenizer.encode(text, { addSpecial: false });
    const size = Math.min(window, info.contextLength);
    let [nll, tokens] = [0, 0];
    for (let at = 0; at < ids.length; at += size) {
      const part = ids.slice(at, at + size);
      if (part.length < 2) continue;
      const make = () => ({
        event(event: EngineEvent) {
          if (event.type !== "scored") return;
          nll += event.nll;
          tokens += event.tokens;
        },
        result: () => null,
      });
      await this.#once(part, { type: "score" }, context, make, adapters);
    }
    if (tokens === 0)
      throw new EngineError("InvalidArgument", "perplexity: the text has fewer than two tokens", { option: "text" });
    return { perplexity: Math.exp(nll / tokens), nll: nll / tokens, tokens };
  }

  /** A request on a session of its own. */
  async #once<T>(
    ids: number[],
    work: EngineWork,
    context: CallContext<VerbName>,
    make: () => { event(event: EngineEvent): void; result(): T },
    adapters?: readonly AdapterUse[],
  ): Promise<T> {
    const { engine, loop } = this.#loaded;
    const session = engine.open();
    const { event: take, result } = make();
    try {
      this.#adapt(session, adapters);
      await this.#request<null>(loop, session, ids, work, context, (settle) => ({
        onEvent: (event) => (event.type === "finished" ? settle.resolve(null) : take(event)),
      }));
      return result();
    } finally {
      engine.close(session);
    }
  }

  /** Submits, and settles with the request: finished, failed, ended early or aborted. */
  #request<T>(
    loop: EngineLoop,
    session: number,
    ids: number[],
    work: EngineWork,
    { signal }: { signal: AbortSignal },
    listen: (settle: Settle<T>) => Listener,
  ): Promise<T> {
    let onAbort = () => {};
    let end: ((error: unknown) => void) | null = null;
    return new Promise<T>((resolve, reject) => {
      signal.throwIfAborted();
      let request = 0;
      const early = (value: () => T) => {
        loop.cancel(request);
        resolve(value());
      };
      const fail = (error: unknown) => {
        loop.cancel(request);
        reject(error);
      };
      const pause = (paused: boolean) => loop.pause(request, paused);
      const { onEvent, onPause } = listen({ resolve, early, fail, pause });
      onAbort = () => fail(signal.reason);
      signal.addEventListener("abort", onAbort);
      request = loop.submit(session, ids, work, {
        onEvent: (event) => (event.type === "failed" ? reject(event.error) : onEvent(event)),
        ...(onPause ? { onPause } : {}),
      });
      end = fail;
      this.#underWay.set(session, end);
    }).finally(() => {
      signal.removeEventListener("abort", onAbort);
      if (end) this.#underWay.delete(session);
    });
  }
}

/** The address holds in the bundles, which lie beside the wasm file. */
async function constrainModule({ given, fetchFile }: Platform): Promise<WebAssembly.Module> {
  if (!given) return compile(new URL("./constrain.wasm", import.meta.url), fetchFile);
  if (given.constrain) return given.constrain;
  const message = "a format needs the load option constrain here: the compiled module of constrain.wasm";
  throw new EngineError("UnsupportedOption", message, { option: "constrain" });
}

/** Of length 1. */
function unit(row: Float32Array): Float32Array {
  const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? row.map((value) => value / length) : row;
}

function defined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

function randomSeed(): number {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
  return (high & 0x1fffff) * 2 ** 32 + low;
}
