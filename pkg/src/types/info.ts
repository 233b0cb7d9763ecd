/** What a model is, whether it fits, and how busy it is. */

import type {
  ActivationMap,
  Activations,
  BatchingOptions,
  DotProduct,
  Head,
  I2sInterleave,
  KvCacheType,
  OneBitSums,
  TernaryPacking,
  WeightPrefetch,
} from "./load.ts";
import type { Progress } from "./sources.ts";
import type { AbortSignal } from "./web.ts";

/** One tensor of a file. */
export interface TensorSummary {
  name: string;
  /** Storage type in the file: `TQ2_0`, `Q6_K`, `BF16`, `U8x4` (Hugging Face's packed ternary) … */
  type: string;
  /** Rows first. */
  shape: number[];
  bytes: number;
  /** What one scale covers: `tensor`, `row`, `block of 256` … */
  scale: string;
  /** Bits of one value's code in memory, without scales; of a float, its own. */
  bits: number;
  /**
   * The code that stands for zero: 1 for ternary codes, 0 for signed ones, 0.5 for ±1, which has no zero. Absent for floats, and where
   * minima move it with every block.
   */
  zeroPoint?: number;
  /** What it takes in memory, where matrices are packed in tiles of 32 rows. */
  memoryBytes: number;
  /** Of these, what fills the last tile's rows and the last block of each row: memory that is read with every token and tells nothing. */
  paddingBytes: number;
  /** Share of weights that are exactly zero, from 0 to 1, where the weights were read. */
  zeroShare?: number;
  /** The type that the option `head` rounds it to while it arrives: `Q6_K` … */
  roundedTo?: string;
}

/** Memory of a model, in bytes. */
export interface MemoryNeeds {
  weights: number;
  /** Keys and values. */
  kv: number;
  /** States of conversations on a hybrid, see `recurrentStates`; 0 for other models. */
  states: number;
  scratch: number;
  total: number;
}

/** What the model takes with one value of the option `head`. */
export interface HeadChoice {
  head: Head;
  memory: MemoryNeeds;
  /** Bytes of weights that computing one token reads. Decoding is at best as fast as memory brings these. */
  bytesPerToken: number;
}

/** What `canRun` returns. Files that cannot run at all are errors instead, as from `load`. */
export interface CanRun {
  ok: boolean;
  /** With the options given. */
  needed: MemoryNeeds;
  /**
   * Bytes available for `needed.total`: WebAssembly's 4 GiB, or the memory that the runtime says it has, less what other parts of the
   * engine take. For a model that is split, the memory that the runtime has, or what 8 WebAssembly memories have.
   */
  available: number;
  /** How many WebAssembly memories a model takes that is larger than one; absent where one has all of it. */
  parts?: number;
  /** Why it does not fit. */
  reason?: string;
  /** The nearest options with which it fits, where there are any. */
  suggestion?: {
    contextLength?: number;
    kvCacheType?: KvCacheType;
    kvCacheTokens?: number;
    prefillChunk?: number;
    recurrentStates?: number;
  };
  /** As `Description.heads`, and whether the model fits with each. */
  heads: (HeadChoice & { ok: boolean })[];
}

/** Options of a load that the description depends on, and how much of the file is read. */
export interface InspectOptions extends BatchingOptions {
  /** Reads the weights too, for what only they tell: the share of zeros. @default false */
  weights?: boolean | undefined;
  /** As in `load`: `memory` and `activations` of the description follow it. @default "auto" */
  activations?: Activations | ActivationMap | undefined;
  /** As in `load`: `memory` of the description follows it. @default "auto" */
  kvCacheType?: KvCacheType | undefined;
  /** As in `load`. @default what the model was trained for, at most 4096 */
  contextLength?: number | undefined;
  /**
   * Packs as ternary what turns out to be ternary: dense TriLM weights, TQ2_0 blocks whose scales agree. Otherwise every tensor keeps
   * the type that the file has.
   * @default true
   */
  repack?: boolean | undefined;
  /** How many values an I2_S file interleaves; other files do not need it. @default "auto" */
  i2s?: I2sInterleave | undefined;
  /** As in `load`: `memory` of the description follows it. @default "2-bit" */
  ternaryPacking?: TernaryPacking | undefined;
  /** As in `load`. @default "auto" */
  oneBitSums?: OneBitSums | undefined;
  /** As in `load`: `memory` of the description follows it. @default "stored" */
  head?: Head | undefined;
  /** Aborts the reading; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as bytes arrive, at most every 50 ms, and once at each change of phase. */
  onProgress?: ((progress: Progress) => void) | undefined;
}

/** What `inspect` returns, and what `model.info` begins with. */
export interface Description {
  /** `gguf` or `safetensors`. */
  format: string;
  architecture: string;
  name: string | null;
  parameters: number;
  /** Of all tensors, as stored. */
  bitsPerWeight: number;
  /** How many tensors there are of each storage type. */
  kinds: Record<string, number>;
  tensors: TensorSummary[];
  /** How the activations of the layers' matrices are rounded; `by matrix` where there is a map. */
  activations: string;
  /** The map that is in force, if there is one: what the option gave, else what the model's key `ternlight.activations` holds. */
  activationMap?: ActivationMap;
  /** How ternary matrices are packed; absent where there are none, or where only the weights tell. */
  ternaryPacking?: Exclude<TernaryPacking, "auto">;
  /** How 1-bit weights are multiplied with a few tokens; absent where there are none, or before that is measured. */
  oneBitSums?: Exclude<OneBitSums, "auto">;
  /**
   * For files with I2_S tensors: how their codes are ordered, and from what that is known. `default` means that only the header was
   * read, or that the weights do not tell.
   */
  i2s?: { interleave: "128" | "64"; from: "option" | "size" | "weights" | "default" };
  config: {
    layers: number;
    /** Width of the hidden state. */
    hidden: number;
    /** Width of the feed-forward layers. */
    ffn: number;
    heads: number;
    kvHeads: number;
    headSize: number;
    vocab: number;
    /** The context that the model was trained for, in tokens. */
    contextLength: number;
    ropeBase: number;
    activation: string;
    /** Whether the head is the embedding matrix. */
    tied: boolean;
    /** Of a hybrid: how many of the layers are gated delta nets, their heads and the size of one. */
    deltaNet?: { layers: number; keyHeads: number; valueHeads: number; headSize: number };
  };
  /** For files whose weights are stored in a rotated basis: how many matrices, and how their inputs are rotated to fit. */
  rotation?: { transform: "hadamard"; block: number; signs: boolean; matrices: number; embedding: boolean };
  /** null where the model has none. */
  tokenizer: { kind: string; vocab: number; bos: string | null; eos: string[]; addBos: boolean } | null;
  /** The chat template's place and length in characters; null where the model has none. */
  template: { source: string; length: number } | null;
  memory: MemoryNeeds;
  /** The values of the option `head` that change this model, with what it takes then; `stored` comes first. */
  heads: HeadChoice[];
  /** What is unusual about the model, in words. */
  warnings: string[];
}

/** What a loaded model is and how it runs. */
export interface ModelInfo extends Description {
  /** Logits of each position. */
  vocab: number;
  /** Positions that one conversation may hold. */
  contextLength: number;
  /** Requests that are computed together, on a hybrid no more than have states; `configure` changes it. */
  maxSequences: number;
  kvCacheType: Exclude<KvCacheType, "auto">;
  /** The build that runs: `threads-relaxed`, `single-simd128` … */
  flavour: string;
  dotProduct: Exclude<DotProduct, "auto">;
  /** Which weights are touched ahead of their use, by the bits of their codes or their type of floats: `{ "2-bit": "off", "6-bit K": "near", f16: "pages" }`. */
  weightPrefetch: Readonly<Record<string, Exclude<WeightPrefetch, "auto">>>;
  threads: number;
  /** Why there are fewer threads than cores, or than were asked for, in words; null where there are not. */
  threadsReason: string | null;
  /**
   * Of a load with `prefill`: the prompt's tokens, and the layers that were computed when the last byte had come. `late` is the tensor
   * that comes so late in its file that most layers had to wait for it; null where none does, or where the weights could be read in
   * another order than the file's, as without `integrity` they are.
   */
  prefill?: { readonly tokens: number; readonly layers: number; readonly late: string | null };
  /** How many WebAssembly memories share a model that is larger than one; absent where one has all of it. */
  parts?: number;
  /** Bytes of wasm memory that were held after the load. */
  memoryBytes: number;
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
  /** Of these, tokens of open sessions and running requests. */
  usedTokens: number;
  /** Of these, tokens of ended conversations, kept for later ones that begin alike until their room is needed. */
  evictableTokens: number;
  /** States of conversations that there is room for on a hybrid; 0 for other models. */
  recurrentStates: number;
  /** Of these, those of open sessions and running requests, and those that are kept for later ones that begin alike. */
  usedStates: number;
  /** Bytes of wasm memory now held. */
  memoryBytes: number;
  /** Threads that compute: one fewer than `info.threads` while a page that renders, or another program, makes that faster. */
  threads: number;
}
