/** A loaded model. */

import type { AdapterInfo, AdapterOptions } from "./adapters.ts";
import type { ChatMessage, ChatOptions, CountOptions, RenderOptions, TokenizeOptions } from "./chat.ts";
import type { EngineError } from "./errors.ts";
import type { CompletionOptions, GenerateOptions, Generation, Prompt, TokenIds, TokenLogprobs } from "./generate.ts";
import type { Health, HealthOptions } from "./health.ts";
import type { ModelInfo, ModelStatus } from "./info.ts";
import type { BatchingOptions } from "./load.ts";
import type { MetricsOptions, Statistics } from "./metrics.ts";
import type {
  DetokenizeOptions,
  EmbedOptions,
  LogitsOptions,
  Perplexity,
  PerplexityOptions,
  PromptLogprobsOptions,
  TokenBytes,
  TokenizerInfo,
} from "./score.ts";
import type { Session, SessionOptions } from "./session.ts";
import type { ModelSource } from "./sources.ts";
import type { AsyncDispose } from "./web.ts";

/**
 * A loaded model. Many requests may run at once; each step computes a token of every one. After `close()` every method fails with
 * `Closed`.
 */
export interface Model extends AsyncDispose {
  /** What the model is and how it runs. */
  readonly info: ModelInfo;
  /** Resolves when the model can answer no more: with `Closed` after `close()`, else with what ended its worker. */
  readonly lost: Promise<EngineError>;
  /**
   * Continues a text or a list of token ids.
   *
   * @param prompt a text, to which the tokenizer's BOS is added, or ids that are fed exactly as given
   * @returns the answer, which begins at once; what goes wrong later rejects its iteration and its `finished`: `ContextFull` for a
   *   prompt that does not fit, `QueueFull`, `MissingTokenizer` for a text without a tokenizer, `BadConstraint`, `Closed`
   * @throws {EngineError} `InvalidArgument`, at once, for an option or a prompt that is wrong
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * const generation = model.generate("Once upon a time", { maxTokens: 32, seed: 1 });
   * for await (const piece of generation) process.stdout.write(piece.text);
   * const { finishReason, timings } = await generation.finished;
   * console.log(`\n${finishReason}, ${timings.predictedPerSecond.toFixed(1)} tokens/s`);
   * await model.close();
   * ```
   */
  generate(prompt: Prompt, options?: GenerateOptions & CompletionOptions): Generation;
  /**
   * Answers messages. They are rendered with the model's own chat template; nothing is added to what it renders.
   *
   * @param messages the whole conversation
   * @returns the answer, as from `generate`; it also rejects with `MissingTemplate` for a model without a template and with
   *   `BadTemplate` where the template fails on these messages
   * @throws {EngineError} `InvalidArgument`, at once, for an option or a message that is wrong; a role that the template does not know
   *   rejects the answer
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * // The demo model has no template of its own.
   * const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
   * const model = await load(demo, { chatTemplate });
   * const messages = [{ role: "user", content: "Tell me of a king." }];
   * const { text } = await model.chat(messages, { maxTokens: 32 }).finished;
   * console.log(text);
   * await model.close();
   * ```
   */
  chat(messages: readonly ChatMessage[], options?: ChatOptions & CompletionOptions): Generation;
  /**
   * Renders messages as `chat` does.
   *
   * @returns the text that the model would be given
   * @throws {EngineError} `InvalidArgument`, `MissingTemplate`, `BadTemplate`
   */
  renderChat(messages: readonly ChatMessage[], options?: RenderOptions): Promise<string>;
  /**
   * Counts the tokens that `chat` would compute of messages, or `generate` of a text.
   *
   * @throws {EngineError} `InvalidArgument`, `MissingTemplate`, `BadTemplate`, `MissingTokenizer`
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * console.log(await model.countTokens("Once upon a time"), "of", model.info.contextLength);
   * await model.close();
   * ```
   */
  countTokens(prompt: string | readonly ChatMessage[], options?: CountOptions): Promise<number>;
  /**
   * Loads a LoRA adapter, also while answers are being written: a PEFT folder (`adapter_config.json`, `adapter_model.safetensors`) or a
   * GGUF. Requests name it in `adapters`.
   *
   * @param source as of a model
   * @returns what was loaded, with the name that requests use
   * @throws {EngineError} `InvalidArgument` for a name that is taken, `OutOfMemory` beyond the load option `maxAdapterBytes`, and the
   *   errors of files and networks as from `load`
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * const { name, rank } = await model.loadAdapter("my-adapter/");
   * console.log(name, rank);
   * const adapters = [{ name, scale: 0.5 }];
   * console.log(await model.generate("Once upon a time", { adapters, maxTokens: 16 }).text());
   * await model.unloadAdapter(name);
   * await model.close();
   * ```
   */
  loadAdapter(source: ModelSource, options?: AdapterOptions): Promise<AdapterInfo>;
  /** The adapters that were loaded and not unloaded since. */
  readonly adapters: readonly AdapterInfo[];
  /**
   * Unloads an adapter. Its name is free at once. Answers under way and sessions that use it keep it; its memory is free when the last
   * of them ends.
   *
   * @throws {EngineError} `InvalidArgument` where no adapter has this name
   */
  unloadAdapter(name: string): Promise<void>;
  /**
   * Opens a session: a conversation that keeps what was computed.
   *
   * @throws {EngineError} `Closed`
   */
  session(options?: SessionOptions): Session;
  /**
   * Opens a session that was saved.
   *
   * @param bytes what `session.save()` gave
   * @param options the adapters with which the session was saved
   * @throws {EngineError} `BadMagic` (no saved session), `Damaged`, `UnsupportedVersion`, or `WrongModel`, also where the session was
   *   saved with other adapters
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * const session = model.session();
   * await session.generate("Once upon a time", { maxTokens: 16 }).finished;
   * const saved = await session.save();
   * await session.close();
   *
   * const again = await model.restoreSession(saved);
   * const { text, timings } = await again.generate(" Then the king", { maxTokens: 16 }).finished;
   * console.log(text, `(${timings.cachedN} tokens were not computed again)`);
   * await model.close();
   * ```
   */
  restoreSession(bytes: Uint8Array | ArrayBuffer, options?: SessionOptions): Promise<Session>;
  /**
   * Changes how requests share steps while the model runs, from the next step on; what is left out stays as it is. Answers under way go
   * on, with the same bits, also those beyond a smaller `maxSequences`. Nothing is allocated: scratch memory was reserved at the load for
   * `prefillChunk + maxSequences - 1` tokens of one pass, or for `maxBatchTokens`, whichever is smaller.
   *
   * @throws {EngineError} `InvalidArgument` for an option that is wrong, or that needs more memory than the load has reserved: `detail`
   *   has the option and the most that is possible
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo, { maxSequences: 16 });
   * // Somebody waits for each word now: fewer share a step, and prompts hold them up for less time.
   * await model.configure({ maxSequences: 4, prefillChunk: 64 });
   * console.log(model.info.maxSequences);
   * await model.close();
   * ```
   */
  configure(options: BatchingOptions): Promise<void>;
  /** Computes a few tokens and throws them away: the first answer then comes as fast as any other. */
  warmup(): Promise<void>;
  /** Tells how many requests run and wait, and how much of the KV cache is in use. */
  status(): Promise<ModelStatus>;
  /**
   * Tells how well the model is. With the load option `health` it is watched while it runs; without, it costs nothing and little is known.
   *
   * @throws {EngineError} `InvalidArgument` for an option that is wrong, or that needs the load option
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo, { health: true });
   * await model.generate("Once upon a time", { maxTokens: 64 }).finished;
   * const { state, signals } = await model.health();
   * console.log(state, signals.weights.state, signals.repetition.value);
   * await model.close();
   * ```
   */
  health(options?: HealthOptions): Promise<Health>;
  /** Tells what was counted and timed since the load; in a page, since the first call of this, `metrics` or `health`. */
  statistics(): Promise<Statistics>;
  /**
   * Writes what was counted and timed for Prometheus.
   *
   * @returns text, whose samples have the label `model`
   * @throws {EngineError} `InvalidArgument` for an option that is wrong
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * await model.generate("Once upon a time", { maxTokens: 16 }).finished;
   * console.log(await model.metrics({ format: "openmetrics" }));
   * await model.close();
   * ```
   */
  metrics(options?: MetricsOptions): Promise<string>;
  /**
   * Computes logits.
   *
   * @param ids token ids, fed exactly as given
   * @returns one row of `info.vocab` values for the last id, or with `all` for every id
   * @throws {EngineError} `InvalidArgument` for ids that are none, `ContextFull`
   */
  logits(ids: TokenIds, options?: LogitsOptions): Promise<Float32Array<ArrayBuffer>[]>;
  /**
   * Computes an embedding of each text: its tokens' hidden states behind the output norm, pooled.
   *
   * @param texts texts, or lists of token ids
   * @returns one row of `info.config.hidden` values for each text
   * @throws {EngineError} `InvalidArgument`, `ContextFull` for a text that does not fit, `MissingTokenizer`
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * const [king, queen, stone] = await model.embed(["the king", "the queen", "a stone"]);
   * const similarity = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
   * console.log(similarity(king!, queen!), similarity(king!, stone!));
   * await model.close();
   * ```
   */
  embed(texts: readonly Prompt[], options?: EmbedOptions): Promise<Float32Array<ArrayBuffer>[]>;
  /**
   * Computes the perplexity of a text. It is cut into consecutive windows; in each, every id is predicted from those before it.
   *
   * @throws {EngineError} `InvalidArgument` for a text of fewer than two tokens, `MissingTokenizer`
   */
  perplexity(text: string, options?: PerplexityOptions): Promise<Perplexity>;
  /**
   * Turns a text into token ids, or messages into those that `chat` would compute.
   *
   * @throws {EngineError} `InvalidArgument`, `MissingTemplate`, `BadTemplate`, `MissingTokenizer`
   */
  tokenize(prompt: string | readonly ChatMessage[], options?: TokenizeOptions): Promise<number[]>;
  /**
   * Turns token ids into a text. Bytes that are no character show as U+FFFD.
   *
   * @throws {EngineError} `MissingTokenizer`
   */
  detokenize(ids: TokenIds, options?: DetokenizeOptions): Promise<string>;
  /**
   * Tells how likely each token of a prompt is behind those before it.
   *
   * @param ids token ids, fed exactly as given
   * @returns one entry for each id but the first
   * @throws {EngineError} `InvalidArgument` for ids that are none, `ContextFull`
   */
  promptLogprobs(ids: TokenIds, options?: PromptLogprobsOptions): Promise<TokenLogprobs[]>;
  /** Tells what the model's files say of its texts. */
  tokenizerInfo(): Promise<TokenizerInfo>;
  /**
   * Tells what tokens are: their bytes, which need not be whole characters.
   *
   * @returns one entry for each id
   * @throws {EngineError} `MissingTokenizer`
   */
  tokenBytes(ids: TokenIds): Promise<TokenBytes[]>;
  /**
   * Ends the workers and gives back all memory. Resolves when the runtime says that they have ended: Node does, browsers do not tell.
   * Calling it again does nothing.
   */
  close(): Promise<void>;
}
