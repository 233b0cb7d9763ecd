/** The options of a load, and the choices that they offer. */

import type { ChatMessage, ChatOptions } from "./chat.ts";
import type { Prompt } from "./generate.ts";
import type { HealthWatch } from "./health.ts";
import type { Progress, SourceOptions } from "./sources.ts";
import type { AbortSignal } from "./web.ts";

/** How activations are rounded before integer products. `auto` follows the model's own map, else the way it was trained. */
export type Activations = "auto" | "int8" | "int14" | "float";

/** How the input of a matrix is rounded. */
export type MappedPrecision = "int2" | "int4" | "int8" | "int14" | "float";

/**
 * How activations are rounded by matrix: `blk.3`, `blk.0-5` or `blk.*`, each alone or with a matrix (`blk.3.attn_q`), in GGUF's names. The
 * closest key counts; matrices that none names are rounded as the model was trained. An empty map takes the model's own away.
 */
export type ActivationMap = Readonly<Record<string, MappedPrecision>>;

/**
 * How keys and values are stored between steps. `auto` is `f32` while the cache stays small, else `f16`. `fp8` (e4m3) and `q8`, `q4`,
 * `q2` (integers, of rotated rows) have a scale for each head and position.
 */
export type KvCacheType = "auto" | "f32" | "f16" | "fp8" | "q8" | "q4" | "q2";

/** Which build runs. `auto` takes the fastest one that this runtime runs correctly. */
export type Flavour = "auto" | "relaxed" | "simd128";

/**
 * How kernels sum products: `dot4` sums four in one lane, which processors with VNNI or SDOT do in one instruction; `dot2` sums two,
 * which other processors do faster. `auto` times both while a model loads, and a cache keeps it for a week. Answers are the same, bit for bit.
 */
export type DotProduct = "auto" | "dot4" | "dot2";

/**
 * Whether kernels touch weights ahead of their use, which helps processors whose own prefetching stops at page ends and slows others
 * down. `auto` measures it for each kind of codes while a model loads, as `dotProduct`: 40 ms at most for both, 5 ms below 20 MB of weights,
 * and more by a clock with steps of a millisecond, as pages that are not isolated may have. Before that, while threads join, dot products are
 * warmed up for about 5 ms. Answers are the same, bit for bit.
 */
export type WeightPrefetch = "auto" | "off" | "near" | "pages";

/**
 * The order in which waiting requests get a place. `fair` gives half of the places to the shortest requests, so that these pass long
 * ones; `fcfs` serves first come, first served.
 */
export type Scheduling = "fair" | "fcfs";

/**
 * How many values an I2_S file interleaves: x86 builds and Microsoft's converter write `128`, ARM builds wrote `64`. No header tells
 * it. `auto` asks the weights: in a trained model the rows of `ffn_up` with many zeros are the columns of `ffn_down` with many zeros,
 * but only in the right order. Weights from which nothing can be told (random ones can, once in 10⁹ files) are read as 128, with a
 * warning.
 */
export type I2sInterleave = "auto" | "128" | "64";

/**
 * What the embedding and the head are rounded to while they arrive. `stored` leaves both as the file has them. The types are ggml's, with
 * the bits that llama.cpp's quantiser writes.
 */
export type Head = "stored" | "q8_0" | "q6_k" | "q4_0";

/** A chat that is computed while the weights come, with what its template is given. */
export interface PrefillChat extends Pick<ChatOptions, "tools" | "templateOptions"> {
  messages: readonly ChatMessage[];
}

/** A prompt as `generate` takes it, messages as `chat` takes them, or what `session.save()` gave. */
export type Prefill = Prompt | readonly ChatMessage[] | PrefillChat | Uint8Array;

/** Whether a load may take other settings than it was asked for. */
export type Fit = "none" | "auto";

/**
 * How ternary weights are packed in memory: four to a byte, or five, which takes a fifth less and more instructions. The results are the same
 * bits. `auto` measures models of 20 MB and more, and takes five where that is no slower.
 */
export type TernaryPacking = "2-bit" | "1.6-bit" | "auto";

/**
 * How 1-bit weights are multiplied with a few tokens: by dot products (`dot`), or with sums of four products that are looked up (`lookup`).
 * The results are the same bits. `auto` looks up where products are summed in pairs (`dotProduct`), since the processor has no dot product of
 * bytes then. Builds without relaxed SIMD, and weights with minima or f32 scales, always look up.
 */
export type OneBitSums = "auto" | "dot" | "lookup";

/** How requests share steps: options of a load, which `model.configure()` changes while the model runs. */
export interface BatchingOptions {
  /**
   * The most prompt tokens that one pass computes; an eighth of it while other answers are being written, so that none of them waits
   * long. It changes speed and scratch memory, never a result. One reading of the weights serves a whole chunk: more than 256 tokens
   * gain nothing.
   * @default 256 tokens
   */
  prefillChunk?: number | undefined;
  /**
   * Requests that are computed together; further ones wait for a place. One reading of the weights serves them all.
   * @default 8 requests
   */
  maxSequences?: number | undefined;
  /**
   * The most tokens of one pass, prompts and running answers together. Scratch memory is reserved for this or for
   * `prefillChunk + maxSequences - 1`, whichever is smaller.
   * @default 2048 tokens
   */
  maxBatchTokens?: number | undefined;
  /** Requests that may wait; the next one is refused with `QueueFull`. @default 32 requests */
  maxWaiting?: number | undefined;
  /** The order of waiting requests. @default "fair" */
  scheduling?: Scheduling | undefined;
}

/** Options of `canRun`: those of the load, and what the model may take. */
export interface CanRunOptions extends LoadOptions {
  /** Bytes that the model may take. @default what the runtime has free, at most 8 WebAssembly memories of 4 GiB */
  memory?: number | undefined;
}

export interface LoadOptions extends SourceOptions, BatchingOptions {
  /** Aborts the load; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as bytes arrive, at most every 50 ms, and once at each change of phase. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /**
   * Threads to compute with. More than one needs shared memory (in a page: cross-origin isolation); 1 takes the build without threads.
   * @default free cores, at most 8
   */
  threads?: number | undefined;
  /** The build that runs. @default "auto" */
  flavour?: Flavour | undefined;
  /** How kernels sum products. On an edge worker, whose clock stands still, "auto" goes by the instructions that are there. @default "auto" */
  dotProduct?: DotProduct | undefined;
  /** Which weights kernels touch ahead of their use. On an edge worker "auto" is "off". @default "auto" */
  weightPrefetch?: WeightPrefetch | undefined;
  /**
   * Positions that one conversation may hold.
   * @default what the model was trained for, at most 4096
   */
  contextLength?: number | undefined;
  /** How keys and values are stored. @default "auto" */
  kvCacheType?: KvCacheType | undefined;
  /** How activations are rounded: of all matrices alike, or by a map. @default "auto" */
  activations?: Activations | ActivationMap | undefined;
  /**
   * Tokens whose keys and values are kept, for all conversations together and, of ended conversations, for later ones that begin
   * alike. At least `contextLength`. What was unused longest is evicted first, and computed again when it is needed.
   * @default up to four full contexts within 256 MB
   */
  kvCacheTokens?: number | undefined;
  /**
   * Conversations on a hybrid (gated delta nets beside attention) whose state is kept: those that run, and earlier positions to which a
   * conversation may be rewound or from which another one that begins alike goes on.
   * @default as many as 256 MB hold, 2 to 64
   */
  recurrentStates?: number | undefined;
  /**
   * Shares what was computed between conversations that begin alike, in whole blocks of 32 tokens. No result changes.
   * @default true
   */
  prefixReuse?: boolean | undefined;
  /**
   * Loads the head for further tokens (MTP) too, where a hybrid has one, and computes with it the keys and values of a layer more. It guesses
   * for `mtpDraft`. Left out, it takes neither memory nor time.
   * @default false
   */
  mtp?: boolean | undefined;
  /**
   * Memory that all adapters together may take, 128 MiB by default: `loadAdapter` refuses one that would need more. Until adapters are
   * loaded it is address space alone.
   * @default 134217728 bytes
   */
  maxAdapterBytes?: number | undefined;
  /**
   * Bytes of weights, cache and scratch in one WebAssembly memory: a model that takes more is split by layers over several. Smaller than
   * the default where a device refuses memories of 4 GiB.
   * @default what 4 GiB leave for a model
   */
  maxPartBytes?: number | undefined;
  /**
   * Packs as ternary what turns out to be ternary: dense TriLM weights, TQ2_0 blocks whose scales agree. Otherwise every tensor keeps
   * the type that the file has.
   * @default true
   */
  repack?: boolean | undefined;
  /** How many values an I2_S file interleaves; other files do not need it. @default "auto" */
  i2s?: I2sInterleave | undefined;
  /** How ternary weights are packed. `inspect` and `canRun` follow it; for "auto" they count 2 bits. @default "2-bit" */
  ternaryPacking?: TernaryPacking | undefined;
  /** How 1-bit weights are multiplied with a few tokens. On an edge worker "auto" is "lookup". @default "auto" */
  oneBitSums?: OneBitSums | undefined;
  /**
   * Rounds the embedding and the head, be they one matrix or two, to a smaller type while they arrive: less memory, more tokens a
   * second, and other logits. What takes no more than that as it is stored stays so, with a warning. Rows must be whole blocks: of 256
   * values for `q6_k`, of 32 for the others. `inspect` and `canRun` tell what each choice takes.
   * @default "stored"
   */
  head?: Head | undefined;
  /**
   * A chat template to use instead of the model's own. `"embedded"` takes the file's own even where it is known to be wrong.
   * @default the model's own
   */
  chatTemplate?: string | undefined;
  /**
   * A prompt that is computed while the weights come, a layer as soon as all of it has come. The first generation that begins with it
   * goes on from there; its answer is the same, bit for bit. What is left when the last byte has come is computed behind the load, until
   * a request comes that begins otherwise. `model.info.prefill` tells how far it came.
   * @default none
   */
  prefill?: Prefill | undefined;
  /**
   * Warms up in idle time behind the load, as `model.warmup()` does, for half a second of computing at most. It is given up as soon as
   * the model has something to do.
   * @default true in pages, false elsewhere
   */
  warmup?: boolean | undefined;
  /**
   * Writes to every page of weights, KV cache and scratch when the model is loaded, so that none of them is taken from the system while an
   * answer is written. All memory of the model is resident then, also what a cache of keys and values would take only later.
   * @default false
   */
  prefault?: boolean | undefined;
  /**
   * What happens where the model does not fit in memory: `none` is an error that names settings with which it does, `auto` takes them and
   * says so in `info.warnings`.
   * @default "none"
   */
  fit?: Fit | undefined;
  /**
   * Watches the model's health while it runs, see `model.health()`: hashes of its weights are taken at load and compared later, and some
   * steps are looked at. Answers are the same, bit for bit.
   * @default false
   */
  health?: boolean | HealthWatch | undefined;
  /**
   * Records what is done when with `performance.measure`, in the timeline of the thread that loads: the phases of the load, and for each
   * request every chunk of its prompt and every step of its answer. DevTools shows them in tracks of their own, under `ternlight`. They
   * accumulate until `performance.clearMeasures()`.
   * @default false
   */
  userTiming?: boolean | undefined;
}
