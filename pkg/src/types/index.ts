/**
 * The public types. Sizes are in bytes, times in milliseconds, token counts in tokens. An option that is undefined counts as left out,
 * also where `exactOptionalPropertyTypes` tells the two apart.
 */

/** One file of a model. A string or URL is http(s), or a file path under Node, Deno and Bun. */
export type FileSource = string | URL | Request | Blob | Uint8Array | FileHandleLike;

/**
 * Where a model comes from: one GGUF file, any part of a split one (`-00001-of-00003.gguf`) where the others lie beside it,
 * or a folder with one GGUF or with `config.json`, `model.safetensors` or its shards and their index, `tokenizer.json` and
 * `tokenizer_config.json`. A folder is a string or URL that ends in `/`, a directory path, a directory handle, a list of
 * its files, or its files by name. A URL folder cannot be listed: its GGUF must be named.
 */
export type ModelSource =
  | FileSource
  | DirectoryHandleLike
  | readonly FileSource[]
  | FileListLike
  | Record<string, FileSource>;

/** A browser's FileSystemFileHandle. It and the next two are spelled out for projects without the DOM's types, which have no name for them. */
export interface FileHandleLike {
  readonly kind: "file";
  readonly name: string;
  getFile(): Promise<NamedBlob>;
}

/** A browser's FileSystemDirectoryHandle. */
export interface DirectoryHandleLike {
  readonly kind: "directory";
  readonly name: string;
  getFileHandle(name: string): Promise<FileHandleLike>;
}

/** A browser's FileList. */
export interface FileListLike {
  readonly length: number;
  item(index: number): NamedBlob | null;
  readonly [index: number]: NamedBlob;
}

type NamedBlob = Blob & { readonly name: string };

/** How activations are rounded before integer products. `auto` follows the way the model was trained. */
export type Activations = "auto" | "int8" | "int14" | "float";

/**
 * How keys and values are stored between steps. `auto` is `f32` while the cache stays small, else `f16`. `fp8` (e4m3) and `q8`, `q4`,
 * `q2` (integers, of rotated rows) have a scale for each head and position.
 */
export type KvCacheType = "auto" | "f32" | "f16" | "fp8" | "q8" | "q4" | "q2";

/** Which build runs. `auto` takes the fastest one that this runtime runs correctly. */
export type Flavour = "auto" | "relaxed" | "simd128";

/**
 * How kernels sum products: `dot4` four to a lane, which processors with VNNI or SDOT do at once, `dot2` two by two, which others do
 * faster. `auto` times both while a model loads, for a few milliseconds. Answers are the same, bit for bit.
 */
export type DotProduct = "auto" | "dot4" | "dot2";

/**
 * The order in which waiting requests get a place. `fair` gives half of the places to the shortest requests, so that these pass long
 * ones; `fcfs` serves first come, first served.
 */
export type Scheduling = "fair" | "fcfs";

/**
 * Values that an I2_S file interleaves: `128` is what x86 builds and Microsoft's converter write, `64` what ARM builds wrote. No header
 * says it. `auto` asks the weights: in a trained model the rows of `ffn_up` with many zeros are the columns of `ffn_down` with many, but
 * only read in the right order. Weights that tell nothing (made at random, they do so once in 10⁹ files) are read as 128, with
 * a warning.
 */
export type I2sInterleave = "auto" | "128" | "64";

/**
 * What happens when a conversation has filled its context. `stop` ends the answer with `finishReason: "length"`, `error` with a
 * `ContextFull`. `shift` goes on: the first 32 tokens (at most an eighth of the context) and the latest half of the context stay, what
 * lies between is forgotten, and what stays is computed anew at its new positions, exactly as if it had been the prompt.
 */
export type ContextFull = "stop" | "error" | "shift";

export interface LoadOptions extends SourceOptions {
  /** Aborts the load; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as bytes arrive, at most every 50 ms, and once at each change of phase. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /**
   * Threads to compute with. Above 1 needs shared memory (in a page: cross-origin isolation); 1 takes the single build.
   * @default free cores, at most 8
   */
  threads?: number | undefined;
  /** @default "auto" */
  flavour?: Flavour | undefined;
  /** @default "auto"; "dot4" on an edge worker, whose clock stands still */
  dotProduct?: DotProduct | undefined;
  /**
   * Positions a conversation may hold.
   * @default what the model was trained for, at most 4096
   */
  contextLength?: number | undefined;
  /** @default "auto" */
  kvCacheType?: KvCacheType | undefined;
  /** @default "auto" */
  activations?: Activations | undefined;
  /**
   * Most prompt tokens computed in one piece; an eighth of it while other answers are being written, so that none of them waits
   * long. It changes speed and scratch memory, never a result. One reading of the weights serves a whole piece: above 256 tokens
   * nothing is gained.
   * @default 256
   */
  prefillChunk?: number | undefined;
  /** Requests computed together; more wait for a place. One reading of the weights serves all. @default 8 */
  maxSequences?: number | undefined;
  /**
   * Most tokens of one step, prompts and running answers together. Scratch is reserved for the smaller one of this and
   * `prefillChunk + maxSequences - 1`.
   * @default 2048
   */
  maxBatchTokens?: number | undefined;
  /** Requests that may wait; the next one is refused with `QueueFull`. @default 32 */
  maxWaiting?: number | undefined;
  /**
   * Tokens whose keys and values are kept, of all conversations together and of ended ones for whoever begins alike. At least
   * `contextLength`; what was unused longest goes first, and is computed again when it is wanted.
   * @default up to four full contexts, within 256 MB
   */
  kvCacheTokens?: number | undefined;
  /** Conversations that begin alike share what was computed, in whole blocks of 32 tokens. No result changes. @default true */
  prefixReuse?: boolean | undefined;
  /** @default "fair" */
  scheduling?: Scheduling | undefined;
  /**
   * Memory that adapters may take together, in bytes: `loadAdapter` refuses what would be more. Until they come it is address space alone.
   * @default 134217728 (128 MiB)
   */
  maxAdapterBytes?: number | undefined;
  /**
   * Packs as ternary what turns out to be ternary: dense TriLM weights, TQ2_0 blocks whose scales agree. Otherwise every tensor keeps
   * the type that the file has.
   * @default true
   */
  repack?: boolean | undefined;
  /** Only for files with I2_S tensors. @default "auto" */
  i2s?: I2sInterleave | undefined;
  /**
   * A chat template to use instead of the model's own; `"embedded"` follows the file's even where it is known to be wrong.
   */
  chatTemplate?: string | undefined;
  /**
   * Notes what is done when with `performance.measure`, in the timeline of whoever loads: the phases of the load, and for each request
   * every piece of its prompt and every step of its answer. DevTools shows them in tracks of their own, under `ternlight`. They pile up
   * until `performance.clearMeasures()`.
   * @default false
   */
  userTiming?: boolean | undefined;
}

/**
 * How a load brings its bytes. What comes from http and https is kept: in a page in its origin's private file system, else in
 * `$XDG_CACHE_HOME/ternlight` (`~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).
 */
export interface SourceOptions {
  /**
   * Keeps what arrives, so that a load that was cut off goes on where it was and the next one asks only whether the file is still the
   * same. `false` keeps and reads nothing; a string is another directory (in a page, its name). Files that the server gives neither an
   * ETag nor a Last-Modified are not kept.
   * @default true
   */
  cache?: boolean | string | undefined;
  /**
   * `always` hashes each chunk of 512 kB that is read from the cache; a damaged one is fetched again. `auto` does so only for what a load
   * left that was cut off.
   * @default "auto"
   */
  verify?: "auto" | "always" | undefined;
  /**
   * SHA-256 of the file, 64 hex digits or `sha256-` and base64; of a model of several files the hash of each that is read, by its name.
   * A file that has another, or none here, is refused. Of what comes from a cache that has hashed it before, that hash is taken.
   */
  integrity?: string | Readonly<Record<string, string>> | undefined;
  /**
   * Ranges that a server is asked for at once, from 1 to 16; one where it alone brings more than 64 MB/s.
   * @default 4
   */
  connections?: number | undefined;
}

/** An adapter that `loadAdapter` has loaded. */
export interface AdapterUse {
  name: string;
  /** What it adds is multiplied by this, from -1000 to 1000; 0 adds nothing. @default 1 */
  scale?: number | undefined;
}

export interface AdapterOptions extends SourceOptions {
  /** What requests call it. @default the name of its file without the ending, or of its folder */
  name?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface AdapterInfo {
  name: string;
  format: "gguf" | "safetensors";
  /** The largest of its ranks. */
  rank: number;
  /** How many of the model's matrices it adds to. */
  matrices: number;
  /** Of memory that it takes, in bytes. */
  bytes: number;
}

/** A file from a server, in the cache. */
export interface CachedFile {
  id: string;
  /** Where it came from, without user, password and query; empty where the head of the file is damaged, or of another version. */
  url: string;
  /** Of the file, in bytes; where nothing says it, what it takes of the storage. */
  size: number;
  /** Bytes of it that are here. */
  kept: number;
  complete: boolean;
  /** When something was last kept. */
  written: Date;
}

export interface CacheOptions {
  /** As the load option `cache`. @default where loads keep what they are given no other place for */
  directory?: string | undefined;
}

/** What loads have kept. */
export interface ModelCache {
  /** The newest first. */
  list(options?: CacheOptions): Promise<CachedFile[]>;
  /**
   * Deletes a file of the list, what came from an address, everything beneath an address that ends in `/`, or everything. What a load
   * has open in another tab, or in this one, is an error in a page (`InUse`).
   * @returns how many files are gone
   */
  delete(what?: CachedFile | string | URL, options?: CacheOptions): Promise<number>;
}

export interface Progress {
  phase: "header" | "download" | "pack" | "ready";
  /** Bytes of weights that have arrived. */
  loaded: number;
  /** Bytes of weights in all; 0 while the header is read. */
  total: number;
  bytesPerSecond: number;
}

/**
 * The links of the sampler chain, in their default order, which is llama.cpp's. Before them come `logitBias` and `bannedSequences`, after
 * them `mirostatTau` and the draw. Each works on the tokens that those before it left, at the temperature set by then.
 */
export type Sampler =
  /** Repetition, frequency and presence penalties. */
  "penalties" | "dry" | "topNSigma" | "topK" | "typicalP" | "topP" | "minP" | "xtc" | "temperature";

/** Where the default is the model's, it is what its generation_config says, if it says anything. */
export interface SamplingOptions {
  /** 0 always takes the most likely token, whatever cuts there are. @default 0.7, or the model's */
  temperature?: number | undefined;
  /** Moves the temperature by how undecided the model is, at most this far down and up; 0 is off. @default 0 */
  dynamicTemperature?: number | undefined;
  /** Above 1 keeps the dynamic temperature low until the model is very undecided. @default 1 */
  dynamicExponent?: number | undefined;
  /** Keep the k most likely tokens; 0 keeps all. @default 40, or the model's */
  topK?: number | undefined;
  /** Of these only the ones whose logit is above their mean by two standard deviations. @default false */
  adaptiveTopK?: boolean | undefined;
  /** Keep the fewest most likely tokens whose probabilities reach p; 1 keeps all. @default 0.95, or the model's */
  topP?: number | undefined;
  /** Drop tokens less likely than p times the likeliest; 0 keeps all. @default 0, or the model's */
  minP?: number | undefined;
  /** Keep the tokens whose surprise is nearest to the entropy, until they reach p; 1 keeps all. @default 1, or the model's */
  typicalP?: number | undefined;
  /** Keep tokens whose logit is within n standard deviations of the highest; 0 keeps all. @default 0 */
  topNSigma?: number | undefined;
  /** XTC: how often the likeliest tokens are dropped, so that a less likely one comes; 0 is off. @default 0 */
  xtcProbability?: number | undefined;
  /** Of tokens at least this probable XTC leaves the least probable. @default 0.1 */
  xtcThreshold?: number | undefined;
  /** Divide (multiply, if negative) the logits of tokens seen before by this; 1 is off. @default 1, or the model's */
  repetitionPenalty?: number | undefined;
  /** Subtracted from a token's logit for every time it has come; 0 is off. @default 0 */
  frequencyPenalty?: number | undefined;
  /** Subtracted once from the logit of every token that has come; 0 is off. @default 0 */
  presencePenalty?: number | undefined;
  /** The last tokens, prompt included, that these three look at; 0 looks at all. @default 0 */
  penaltyLastN?: number | undefined;
  /** DRY: subtracts multiplier · base^(length - allowedLength) from what would continue a repetition of that length. 0 is off. @default 0 */
  dryMultiplier?: number | undefined;
  /** @default 1.75 */
  dryBase?: number | undefined;
  /** Repetitions shorter than this many tokens are free. @default 2 */
  dryAllowedLength?: number | undefined;
  /** The last tokens, prompt included, in which DRY looks for repetitions; 0 looks at all. @default 0 */
  dryLastN?: number | undefined;
  /** No repetition reaches over a token whose text contains one of these. @default ["\n", ":", "\"", "*"], none without a tokenizer */
  dryBreakers?: readonly string[] | undefined;
  /** Mirostat 2: the surprise to aim at, in bits; it replaces all that cut. 0 is off. @default 0 */
  mirostatTau?: number | undefined;
  /** How fast mirostat follows. @default 0.1 */
  mirostatEta?: number | undefined;
  /** Added to the logits of these token ids; -Infinity forbids one. @default {} */
  logitBias?: Readonly<Record<number, number>> | undefined;
  /**
   * Texts or lists of ids that must not come. A text is banned in the ids that the tokenizer gives it at the beginning, after a space and
   * within a line; other ids can spell the same letters. @default []
   */
  bannedSequences?: readonly (string | readonly number[])[] | undefined;
  /** The order of the chain; a link that is not named is off. @default all, in the order of `Sampler` */
  samplers?: readonly Sampler[] | undefined;
  /** `none` forgets what the model's generation_config says. @default "model" */
  generationConfig?: "model" | "none" | undefined;
  /** Same seed, same tokens, in every runtime. An integer from 0 to 2^53 - 1. @default random */
  seed?: number | undefined;
  /** Tell with every token how likely the model held it and this many of the likeliest, at most 100. @default none */
  logprobs?: number | undefined;
  /**
   * Guess that what followed the last two to four tokens before follows again, check up to 6 guesses in one step, and keep what the model
   * would have chosen anyway: the same answer in fewer steps where a text repeats itself or its prompt. Rests for 64 tokens where fewer than
   * three guesses in ten are right. Has no effect beside `logitsProcessor`. @default false
   */
  promptLookup?: boolean | undefined;
}

export interface GenerateOptions extends SamplingOptions {
  /** @default until the model ends or the context is full */
  maxTokens?: number | undefined;
  /** Texts that end the generation. They may span pieces and are not part of the text. */
  stop?: string | readonly string[] | undefined;
  /** Do not end at the model's end tokens. @default false */
  ignoreEos?: boolean | undefined;
  /** Add what the tokenizer adds to a text (BOS). Has no effect on ids and chats. @default true */
  addSpecial?: boolean | undefined;
  /** @default "stop" */
  onContextFull?: ContextFull | undefined;
  /**
   * What the text keeps to: of every token only those are chosen from that may still lead to a whole text. It ends by itself, with
   * `finishReason: "stop"`, where nothing more may follow; `maxTokens` may cut it before it is whole. @default any text
   */
  responseFormat?: ResponseFormat | undefined;
  /**
   * Removes soft hyphens, zero-width spaces and joiners and variation selectors from a text or from messages, and leaves the first of
   * several emoji in a row, one of several spaces, one of several blank lines. This changes the prompt: an indent is gone. Ids stay as
   * they are. @default false
   */
  sanitize?: boolean | undefined;
  /** Changes the logits before every choice. @default none */
  logitsProcessor?: LogitsProcessor | undefined;
  /**
   * What is added to the model for this answer. A session keeps those of its last call; with others all that it holds is computed anew.
   * @default none, or the session's
   */
  adapters?: readonly AdapterUse[] | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * `"json"` is any JSON object. A JSON schema that could only be kept approximately is refused (`not`, `uniqueItems`, a `oneOf` whose
 * options overlap). A regular expression is in Rust's syntax, which is JavaScript's without look-around and back-references, and
 * matches the whole text. A grammar is in Lark's syntax as llguidance reads it, from the rule `start`.
 */
export type ResponseFormat =
  | "json"
  | { type: "json_schema"; schema: object | true }
  | { type: "regex"; pattern: string }
  | { type: "grammar"; grammar: string };

/**
 * Called before every choice with one logit for every token and all ids that the conversation holds, prompt included. Changes the
 * logits in place, or answers others; -Infinity forbids a token. What is left goes through the samplers. Other generations run
 * on meanwhile. What it throws rejects the generation. The array is the engine's again afterwards, and empty here: copy what is to
 * stay.
 */
export type LogitsProcessor = (logits: Float32Array, tokens: number[]) => ChangedLogits | Promise<ChangedLogits>;

// biome-ignore lint/suspicious/noConfusingVoidType: a function that changes them in place answers nothing
type ChangedLogits = Float32Array | undefined | void;

/** Of `generate` and `chat` on a model; a session goes one way, and forks. */
export interface CompletionOptions {
  /**
   * Completions of the one prompt, side by side. The prompt's whole blocks of 32 tokens are computed once. Pieces then say which one
   * they belong to (`index`), `finished` has all of them (`choices`), and the one at `index` has the seed `seed + index`.
   * @default 1
   */
  n?: number | undefined;
}

export interface ChatOptions extends GenerateOptions {
  /**
   * Tools in the shape the model's template expects: `{ type: "function", function: { name, description, parameters } }` for most. The
   * calls of the answer are `finished.toolCalls`.
   */
  tools?: readonly unknown[] | undefined;
  /**
   * `"auto"` leaves it to the model; with `"none"` the template hears of no tools. `"required"` allows nothing but calls, a name one call of
   * that tool; their arguments keep to the tool's `parameters`, for templates that spell calls as Hermes, Qwen, Mistral or Llama 3 do. @default "auto"
   */
  toolChoice?: ToolChoice | undefined;
  /** Further variables for the template. */
  templateOptions?: Readonly<Record<string, unknown>> | undefined;
}

export type ToolChoice = "auto" | "none" | "required" | { name: string };

export interface ToolCall {
  /** Where the model gave one. */
  id?: string;
  name: string;
  arguments: object;
}

/** What was meant as a call and is none. */
export interface ToolError {
  /** As the model wrote it. */
  text: string;
  reason: string;
}

export interface ChatMessage {
  role: "system" | "user" | "assistant" | "tool" | (string & {});
  /** null where an assistant's message is `tool_calls` alone, in the templates that know this. */
  content: string | null;
  [key: string]: unknown;
}

export type TokenIds = readonly number[] | Uint32Array | Int32Array;

/** Text, or token ids fed exactly as given. */
export type Prompt = string | TokenIds;

export interface Piece {
  /** Whole characters only; never empty except when a token adds no text of its own. */
  text: string;
  /** The ids whose text this is. */
  tokens: number[];
  /** Which completion it belongs to, where `n` asked for several. */
  index?: number;
  /** One of each id, where asked for. */
  logprobs?: TokenLogprobs[];
}

/** ln p, by the model's own logits: before `logitsProcessor`, penalties and temperature. */
export interface TokenLogprobs {
  token: number;
  logprob: number;
  /** The likeliest, in order. */
  top: { token: number; logprob: number }[];
}

export type FinishReason = "stop" | "length" | "abort";

export interface Timings {
  /** Prompt tokens that were computed. */
  promptN: number;
  /** Tokens before the answer that were not: this session's, or whole blocks of 32 that another conversation began with. */
  cachedN: number;
  promptMs: number;
  promptPerSecond: number;
  predictedN: number;
  predictedMs: number;
  predictedPerSecond: number;
  /** From the call to the first token. */
  ttftMs: number;
}

export interface Finished {
  text: string;
  /** Generated ids without the one that ended it. */
  tokens: number[];
  /** Ids as fed, BOS included. */
  promptTokens: number[];
  finishReason: FinishReason;
  /** Of `tokens`, where asked for. */
  logprobs?: TokenLogprobs[];
  timings: Timings;
  /** All completions, where `n` asked for several; the other fields are the first one's. */
  choices?: Finished[];
  /** Where a chat was given tools: those that the answer calls, in order. They stay in the text, too. */
  toolCalls?: ToolCall[];
  /** And what was meant as a call, but is malformed or of no such tool. */
  toolErrors?: ToolError[];
}

/**
 * One answer under way. Consumed once: by `for await`, `text()` or `toReadableStream()`. Whoever reads slower than the model writes
 * slows this answer alone: with 256 pieces unread it pauses, and others take its place, until half of them are read.
 */
export interface Generation extends AsyncIterable<Piece> {
  /** Settles when the generation has ended, whoever reads the pieces: asking for it ends their limit. */
  readonly finished: Promise<Finished>;
  /** Ends it normally, with the text so far and `finishReason: "abort"`. */
  stop(): void;
  text(): Promise<string>;
  toReadableStream(): ReadableStream<Piece>;
}

export interface Session {
  /** Continues the conversation: what is cached is not computed again. */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  chat(messages: readonly ChatMessage[], options?: ChatOptions): Generation;
  /** Every id this conversation holds; after a generation that failed, as soon as the engine has told. */
  readonly tokens: readonly number[];
  /** Another session that begins with all that this one holds; nothing is computed or copied for it. */
  fork(): Promise<Session>;
  /** Forgets the last `count` tokens. */
  rewind(count: number): Promise<void>;
  /**
   * All that the session holds, keys and values included, for `model.session({ restore })` of the same model with the same `kvCacheType` and
   * `activations`, in any runtime. About as many bytes as its share of the cache.
   */
  save(): Promise<Uint8Array>;
  /** Gives its memory back. A generation that goes on in it is rejected (`Closed`). */
  close(): Promise<void>;
}

export interface SessionOptions {
  /**
   * What `session.save()` gave. Refused with `BadMagic` (no saved session), `Damaged`, `UnsupportedVersion` or `WrongModel`, also
   * where it was saved with other adapters.
   */
  restore?: Uint8Array | undefined;
  /** The adapters that it begins with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
}

/** How busy a model is. */
export interface ModelStatus {
  /** Requests that are computed. */
  running: number;
  /** Requests that wait for a place, at most `maxWaiting`. */
  waiting: number;
  /** Requests that wait for their reader. */
  paused: number;
  /** Tokens whose keys and values there is room for. */
  kvCacheTokens: number;
  /** Of these, those of open sessions and running requests … */
  usedTokens: number;
  /** … and those of ended ones, kept for conversations that begin alike until their room is needed. */
  evictableTokens: number;
  /** Bytes of wasm memory now held. */
  memoryBytes: number;
}

export interface TokenizeOptions {
  /** @default true */
  addSpecial?: boolean | undefined;
}

export interface DetokenizeOptions {
  /** Keep special tokens in the text. @default true */
  special?: boolean | undefined;
}

export interface LogitsOptions {
  /** One row for every id instead of the last one alone. @default false */
  all?: boolean | undefined;
  /** @default none */
  adapters?: readonly AdapterUse[] | undefined;
  signal?: AbortSignal | undefined;
}

export interface EmbedOptions {
  /** How the states of a text's tokens become one: their mean, or the last. @default "mean" */
  pooling?: "mean" | "last" | undefined;
  /** To length 1. @default true */
  normalize?: boolean | undefined;
  /** @default none */
  adapters?: readonly AdapterUse[] | undefined;
  signal?: AbortSignal | undefined;
}

export interface PerplexityOptions {
  /** Tokens of a window. @default 512 */
  window?: number | undefined;
  /** @default none */
  adapters?: readonly AdapterUse[] | undefined;
  signal?: AbortSignal | undefined;
}

export interface InspectOptions {
  /** Read the weights too, for what only they tell: the share of zeros. @default false */
  weights?: boolean | undefined;
  /** @default "auto" */
  activations?: Activations | undefined;
  /** @default "auto" */
  kvCacheType?: KvCacheType | undefined;
  contextLength?: number | undefined;
  prefillChunk?: number | undefined;
  /**
   * Packs as ternary what turns out to be ternary: dense TriLM weights, TQ2_0 blocks whose scales agree. Otherwise every tensor keeps
   * the type that the file has.
   * @default true
   */
  repack?: boolean | undefined;
  /** Only for files with I2_S tensors. @default "auto" */
  i2s?: I2sInterleave | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: Progress) => void) | undefined;
}

export interface Perplexity {
  perplexity: number;
  /** Mean negative log-likelihood, nats a token. */
  nll: number;
  /** Tokens predicted. */
  tokens: number;
}

export interface Model {
  readonly info: ModelInfo;
  generate(prompt: Prompt, options?: GenerateOptions & CompletionOptions): Generation;
  /** Renders the model's own template; nothing is added to it. */
  chat(messages: readonly ChatMessage[], options?: ChatOptions & CompletionOptions): Generation;
  /**
   * Loads a LoRA adapter, also while answers are being written: a PEFT folder (`adapter_config.json`, `adapter_model.safetensors`) or
   * a GGUF. Requests name it in `adapters`.
   */
  loadAdapter(source: ModelSource, options?: AdapterOptions): Promise<AdapterInfo>;
  /** What was loaded, and not unloaded since. */
  readonly adapters: readonly AdapterInfo[];
  /** Its name is free. Answers under way and sessions that have it keep it; with the last of them its memory is free as well. */
  unloadAdapter(name: string): Promise<void>;
  session(): Session;
  session(options: SessionOptions): Promise<Session>;
  /** Computes a few tokens for nobody: the first answer then comes as fast as any other. */
  warmup(): Promise<void>;
  status(): Promise<ModelStatus>;
  /** One Float32Array of `info.vocab` logits per position asked for. */
  logits(ids: TokenIds, options?: LogitsOptions): Promise<Float32Array[]>;
  /** For each text one row of `info.config.hidden` values: its tokens' hidden states behind the output norm, pooled. */
  embed(texts: readonly Prompt[], options?: EmbedOptions): Promise<Float32Array[]>;
  /** Of a text, cut into consecutive windows; in each, every id is predicted from those before it. */
  perplexity(text: string, options?: PerplexityOptions): Promise<Perplexity>;
  tokenize(text: string, options?: TokenizeOptions): Promise<number[]>;
  detokenize(ids: TokenIds, options?: DetokenizeOptions): Promise<string>;
  /**
   * Ends the workers and gives back all memory. Resolves when the runtime says that they have ended: Node does, browsers do not tell.
   * Calling it again does nothing.
   */
  close(): Promise<void>;
}

export interface TensorSummary {
  name: string;
  /** Storage type in the file: `TQ2_0`, `Q6_K`, `BF16`, `U8x4` (Hugging Face's packed ternary) … */
  type: string;
  /** Rows first. */
  shape: number[];
  bytes: number;
  /** What one scale covers: `tensor`, `row`, `block of 256` … */
  scale: string;
  /** Share of weights that are exactly zero, where the weights were read. */
  zeroShare?: number;
}

export interface MemoryNeeds {
  weights: number;
  kv: number;
  scratch: number;
  total: number;
}

/** What `canRun` tells. Files that cannot run at all are errors instead, as from `load`. */
export interface CanRun {
  ok: boolean;
  /** With the options given. */
  needed: MemoryNeeds;
  /** What there is for `needed.total`: WebAssembly's 4 GiB or the memory that the runtime says it has, less what goes elsewhere. */
  available: number;
  /** Why it does not fit. */
  reason?: string;
  /** The nearest options that make it fit, where there are any. */
  suggestion?: { contextLength?: number; kvCacheType?: KvCacheType };
}

/** What `inspect` tells and `model.info` begins with. */
export interface Description {
  /** `gguf` or `safetensors`. */
  format: string;
  architecture: string;
  name: string | null;
  parameters: number;
  /** Of all tensors, as stored. */
  bitsPerWeight: number;
  /** How many tensors of each storage type. */
  kinds: Record<string, number>;
  tensors: TensorSummary[];
  /** How the activations of the layers' matrices are rounded. */
  activations: string;
  /**
   * Of files with I2_S tensors: how their codes are ordered, and what that is known from. `default`: the header alone was read, or the
   * weights do not tell.
   */
  i2s?: { interleave: "128" | "64"; from: "option" | "size" | "weights" | "default" };
  config: {
    layers: number;
    hidden: number;
    ffn: number;
    heads: number;
    kvHeads: number;
    headSize: number;
    vocab: number;
    contextLength: number;
    ropeBase: number;
    activation: string;
    tied: boolean;
  };
  tokenizer: { kind: string; vocab: number; bos: string | null; eos: string[]; addBos: boolean } | null;
  template: { source: string; length: number } | null;
  memory: MemoryNeeds;
  warnings: string[];
}

export interface ModelInfo extends Description {
  vocab: number;
  contextLength: number;
  kvCacheType: Exclude<KvCacheType, "auto">;
  /** The build that runs: `threads-relaxed`, `single-simd128` … */
  flavour: string;
  dotProduct: Exclude<DotProduct, "auto">;
  threads: number;
  /** Why there are fewer threads than cores, in words; null where there are not. */
  threadsReason: string | null;
  /** Bytes of wasm memory now held. */
  memoryBytes: number;
}
