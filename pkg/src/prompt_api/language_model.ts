/** The class `LanguageModel` over one model. Its algorithms are those of the Prompt API; docs/guide/prompt-api.md lists them. */

import type { LazyModel } from "../integration/lazy_model.ts";
import { eitherSignal, unlessAborted } from "../integration/signals.ts";
import type { ChatOptions } from "../types/index.ts";
import { formatOf } from "./constraint.ts";
import { Conversation } from "./conversation.ts";
import { failure, toException } from "./errors.ts";
import type {
  LanguageModelCreateCoreOptions,
  LanguageModelCreateOptions,
  LanguageModelParams,
  LanguageModelPrompt,
  LanguageModelPromptOptions,
  LanguageModelSamplingMode,
  LanguageModelStatic,
} from "./idl.ts";
import { monitored } from "./monitor.ts";
import { checkSignal, supports, validOptions, validPrompt } from "./prompts.ts";

/** Sampling of each mode; `balanced` is what the model's own configuration says. */
const MODES: Record<LanguageModelSamplingMode, ChatOptions> = {
  "most-predictable": { temperature: 0 },
  predictable: { temperature: 0.3 },
  "slightly-predictable": { temperature: 0.5 },
  balanced: {},
  "slightly-creative": { temperature: 0.85 },
  creative: { temperature: 1 },
  "most-creative": { temperature: 1.3, topP: 0.98, topK: 100 },
};

const PARAMS: LanguageModelParams = { defaultTopK: 40, maxTopK: 1000, defaultTemperature: 0.7, maxTemperature: 2 };

/** What an object is made from. */
interface Made {
  conversation: Conversation;
  /** null where numbers were given instead. */
  samplingMode: LanguageModelSamplingMode | null;
  sampling: ChatOptions;
}

type Signals = { signal?: AbortSignal | undefined };

/** Only `create` and `clone` make objects. */
let making: Made | null = null;

class LanguageModelBase extends EventTarget {
  readonly #made: Made;
  readonly #end = new AbortController();
  readonly #handlers = new Map<string, (event: Event) => void>();
  /** Prompts are answered one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  constructor() {
    super();
    if (!making) throw new TypeError("Illegal constructor");
    this.#made = making;
  }

  /** @param signal of its creation: an abort later destroys it */
  static make(made: Made, type: typeof LanguageModelBase, signal?: AbortSignal): LanguageModelBase {
    making = made;
    try {
      const object = new type();
      const destroy = () => object.#destroy(signal?.reason);
      signal?.addEventListener("abort", destroy, { once: true, signal: object.#end.signal });
      return object;
    } finally {
      making = null;
    }
  }

  get contextUsage(): number {
    return this.#made.conversation.usage;
  }

  get contextWindow(): number {
    return this.#made.conversation.window;
  }

  get inputUsage(): number {
    return this.contextUsage;
  }

  get inputQuota(): number {
    return this.contextWindow;
  }

  get samplingMode(): LanguageModelSamplingMode | null {
    return this.#made.samplingMode;
  }

  get topK(): number {
    return this.#made.sampling.topK ?? PARAMS.defaultTopK;
  }

  get temperature(): number {
    return this.#made.sampling.temperature ?? PARAMS.defaultTemperature;
  }

  get oncontextoverflow(): ((event: Event) => void) | null {
    return this.#handlers.get("contextoverflow") ?? null;
  }

  set oncontextoverflow(handler: ((event: Event) => void) | null) {
    this.#handle("contextoverflow", handler);
  }

  get onquotaoverflow(): ((event: Event) => void) | null {
    return this.#handlers.get("quotaoverflow") ?? null;
  }

  set onquotaoverflow(handler: ((event: Event) => void) | null) {
    this.#handle("quotaoverflow", handler);
  }

  async prompt(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<string> {
    let text = "";
    for await (const piece of this.#answer(input, options, this.#signal(options))) text += piece;
    return text;
  }

  promptStreaming(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): ReadableStream<string> {
    const cancelled = new AbortController();
    const pieces = this.#answer(input, options, eitherSignal(this.#signal(options), cancelled.signal));
    return new ReadableStream<string>({
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel(reason) {
        cancelled.abort(reason);
        await pieces.return(undefined).catch(() => {});
      },
    });
  }

  async append(input: LanguageModelPrompt, options: Signals = {}): Promise<undefined> {
    const signal = this.#signal(options);
    return this.#inTurn(signal, async () => {
      const messages = validPrompt(input, this.#made.conversation.begun);
      await this.#made.conversation.add(messages, this.#overflowed, signal);
      return undefined;
    });
  }

  async measureContextUsage(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<number> {
    const signal = this.#signal(options);
    signal.throwIfAborted();
    formatOf(options);
    const messages = validPrompt(input, false).map(({ prefix, ...message }) => message);
    return this.#told(unlessAborted(this.#made.conversation.measure(messages), signal), signal);
  }

  measureInputUsage(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<number> {
    return this.measureContextUsage(input, options);
  }

  async clone(options: Signals = {}): Promise<LanguageModelBase> {
    const signal = this.#signal(options);
    return this.#inTurn(signal, async () => {
      const conversation = await this.#made.conversation.fork();
      return LanguageModelBase.make({ ...this.#made, conversation }, this.constructor as typeof LanguageModelBase);
    });
  }

  destroy(): undefined {
    this.#destroy(failure("AbortError", "the session has been destroyed"));
  }

  #destroy(reason: unknown): void {
    if (this.#end.signal.aborted) return;
    this.#end.abort(reason);
    this.#made.conversation.close();
  }

  readonly #overflowed = () => {
    this.dispatchEvent(new Event("contextoverflow"));
    this.dispatchEvent(new Event("quotaoverflow"));
  };

  async *#answer(
    input: LanguageModelPrompt,
    options: LanguageModelPromptOptions,
    signal: AbortSignal,
  ): AsyncGenerator<string, undefined> {
    const done = await this.#enter(signal);
    try {
      const responseFormat = formatOf(options);
      const messages = validPrompt(input, this.#made.conversation.begun);
      const { conversation, sampling } = this.#made;
      const given = { ...sampling, signal, ...(responseFormat && { responseFormat }) };
      const { finishReason } = yield* conversation.answer(messages, given, this.#overflowed);
      if (responseFormat && finishReason !== "stop")
        throw failure("SyntaxError", "the answer was cut off before it matched the responseConstraint");
    } catch (error) {
      signal.throwIfAborted();
      throw toException(error);
    } finally {
      done();
    }
  }

  async #inTurn<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const done = await this.#enter(signal);
    try {
      return await this.#told(work(), signal);
    } finally {
      done();
    }
  }

  /** Waits until what came before has ended; an abort leaves the queue. @returns what lets the next one in */
  async #enter(signal: AbortSignal): Promise<() => void> {
    const before = this.#last;
    let done = () => {};
    const own = new Promise<void>((resolve) => {
      done = resolve;
    });
    // Where this one leaves early, the next one still waits for those before it.
    this.#last = Promise.all([before, own]);
    try {
      await unlessAborted(before, signal);
      signal.throwIfAborted();
      return done;
    } catch (error) {
      done();
      throw error;
    }
  }

  async #told<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await work;
    } catch (error) {
      signal.throwIfAborted();
      throw toException(error);
    }
  }

  #signal(options: Signals): AbortSignal {
    checkSignal(options);
    return eitherSignal(options.signal, this.#end.signal);
  }

  #handle(type: string, handler: unknown): void {
    const before = this.#handlers.get(type);
    if (before) this.removeEventListener(type, before);
    this.#handlers.delete(type);
    if (typeof handler !== "function") return;
    this.#handlers.set(type, handler as (event: Event) => void);
    this.addEventListener(type, handler as (event: Event) => void);
  }
}

/** The class over a model; it is loaded when the first object is created. */
export function languageModelOf(lazy: LazyModel): LanguageModelStatic {
  const LanguageModel = class LanguageModel extends LanguageModelBase {
    static async availability(options: LanguageModelCreateCoreOptions = {}) {
      validOptions(options);
      if (!supports(options)) return "unavailable";
      return lazy.availability().catch((error) => {
        throw toException(error);
      });
    }

    static async create(options: LanguageModelCreateOptions = {}) {
      const mode = validOptions(options);
      const { signal, monitor, initialPrompts = [], tools = [], topK, temperature } = options;
      const raw = rawOf(topK, temperature);
      const initial = initialPrompts.length > 0 ? validPrompt(initialPrompts, false) : [];
      signal?.throwIfAborted();
      const { tell, end } = monitored(monitor);
      if (!supports(options)) throw failure("NotSupportedError", "the model reads and writes text alone");
      try {
        const model = await lazy.model({ signal, onProgress: tell });
        if (!model.info.template) throw failure("NotSupportedError", "the model has no chat template");
        const conversation = new Conversation(model, tools);
        await conversation.begin(initial, signal ?? new AbortController().signal);
        signal?.throwIfAborted();
        end();
        const samplingMode = Object.keys(raw).length > 0 ? null : mode;
        const made = { conversation, samplingMode, sampling: { ...MODES[mode], ...raw } };
        return LanguageModelBase.make(made, LanguageModel, signal);
      } catch (error) {
        signal?.throwIfAborted();
        throw created(error);
      }
    }

    static async params(): Promise<LanguageModelParams> {
      return { ...PARAMS };
    }
  };
  Object.defineProperty(LanguageModel.prototype, Symbol.toStringTag, { value: "LanguageModel", configurable: true });
  return LanguageModel as unknown as LanguageModelStatic;
}

/** Numbers that were checked: those that are too large count as the largest. */
function rawOf(topK: number | undefined, temperature: number | undefined): ChatOptions {
  const wrong = topK !== undefined && topK < 1 ? "topK must be at least 1" : "temperature must be at least 0";
  if ((topK ?? 1) < 1 || (temperature ?? 0) < 0) throw new RangeError(wrong);
  return {
    ...(topK !== undefined && { topK: Math.floor(Math.min(topK, PARAMS.maxTopK)) }),
    ...(temperature !== undefined && { temperature: Math.min(temperature, PARAMS.maxTemperature) }),
  };
}

/** A model that does not load for good is one that is not supported. */
function created(error: unknown): unknown {
  const exception = toException(error);
  if (!(exception instanceof DOMException) || exception.name !== "UnknownError") return exception;
  const { code } = exception.cause as { code?: string };
  const name = /^(NotFound|OutOfMemory|Bad|Missing)/.test(code ?? "") ? "NotSupportedError" : "OperationError";
  return failure(name, exception.message, exception.cause);
}
