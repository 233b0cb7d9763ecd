/** Options of a load: what the engine plans with, where it runs, and how its bytes come. */

import { type Group, MAX_TOKENS } from "../option.ts";

/** What a model's plan depends on. */
export const plan = {
  activations: {
    kind: { values: ["auto", "int8", "int14", "float"], map: true },
    to: "plan",
    default: "auto",
    flag: {
      value: "A|MAP",
      read: "map",
      help: "How activations are rounded before integer products; auto follows the model's map or training. A map by matrix is a .json file, or JSON itself.",
    },
    help: "How activations are rounded before integer products: of all matrices alike, or by a map; auto follows the model's map, else the way it was trained.",
  },
  kvCacheType: {
    kind: { values: ["auto", "f32", "f16", "fp8", "q8", "q4", "q2"] },
    to: "plan",
    default: "auto",
    was: "kv",
    flag: { name: "kv", value: "C" },
    help: "How keys and values are stored; auto takes f32 while the KV cache stays small, else f16.",
  },
  contextLength: {
    kind: { integer: [1, MAX_TOKENS] },
    to: "plan",
    otherwise: "what the model was trained for, at most 4096",
    unit: "tokens",
    flag: { name: "context", value: "N" },
    help: "Positions that one conversation may hold.",
  },
  repack: {
    kind: "boolean",
    to: "plan",
    default: true,
    was: "layout",
    flag: { name: "no-repack", sets: false, help: "Keep every tensor in the file's own type." },
    help: "Packs weights that turn out to be ternary as ternary; otherwise every tensor keeps the file's type.",
  },
  i2s: {
    kind: { values: ["auto", "128", "64"] },
    to: "plan",
    default: "auto",
    flag: { value: "N" },
    help: "How many values an I2_S file interleaves; auto decides by the weights.",
  },
  ternaryPacking: {
    kind: { values: ["2-bit", "1.6-bit", "auto"] },
    to: "plan",
    default: "2-bit",
    flag: { value: "B" },
    help: "How ternary weights are packed: four to a byte, or five, which takes a fifth less memory; auto takes five where a measurement finds that no slower, and a cache keeps it for a week.",
  },
  oneBitSums: {
    kind: { values: ["auto", "dot", "lookup"] },
    to: "plan",
    default: "auto",
    flag: { value: "S" },
    help: "How 1-bit weights are multiplied with a few tokens: by dot products, or by looking sums of four up; auto does so where products are summed in pairs (dotProduct).",
  },
  head: {
    kind: { values: ["stored", "q8_0", "q6_k", "q4_0"] },
    to: "plan",
    default: "stored",
    flag: { value: "T" },
    help: "Rounds the embedding and the head to this type while they load, unless they take no more as they are stored.",
  },
} as const satisfies Group;

/** How requests share steps. A model that runs takes other values by `configure`. */
export const batching = {
  prefillChunk: {
    kind: { integer: [1, 4096] },
    to: "plan",
    default: 256,
    unit: "tokens",
    flag: { value: "N" },
    help: "The most prompt tokens that one pass computes.",
  },
  maxSequences: {
    kind: { integer: [1, 4096] },
    to: "plan",
    default: 8,
    unit: "requests",
    flag: { value: "N" },
    help: "Requests that are computed together; further ones wait for a place.",
  },
  maxBatchTokens: {
    kind: { integer: [1, 4096] },
    to: "plan",
    default: 2048,
    unit: "tokens",
    flag: { value: "N" },
    help: "The most tokens of one pass, prompts and running answers together.",
  },
  maxWaiting: {
    kind: { integer: [0, MAX_TOKENS] },
    to: "plan",
    default: 32,
    unit: "requests",
    was: "maxQueue",
    flag: { value: "N" },
    help: "Requests that may wait; the next one is refused with QueueFull.",
  },
  scheduling: {
    kind: { values: ["fair", "fcfs"] },
    to: "plan",
    default: "fair",
    was: "firstCome",
    flag: { value: "S" },
    help: "The order of waiting requests: fair gives half of the places to the shortest, fcfs serves first come, first served.",
  },
} as const satisfies Group;

/** What the conversations of many requests share. */
export const serving = {
  kvCacheTokens: {
    kind: { integer: [1, MAX_TOKENS] },
    to: "plan",
    otherwise: "up to four full contexts within 256 MB",
    unit: "tokens",
    was: "cacheTokens",
    flag: { value: "N" },
    help: "Tokens whose keys and values are kept, for all conversations together.",
  },
  recurrentStates: {
    kind: { integer: [1, 4096] },
    to: "plan",
    otherwise: "as many as 256 MB hold, 2 to 64",
    unit: "states",
    flag: { value: "N" },
    help: "Conversations on a hybrid whose state is kept, those that run and earlier positions included.",
  },
  mtp: {
    kind: "boolean",
    to: "plan",
    default: false,
    flag: {},
    help: "Loads the head for further tokens (MTP) too, where the model has one, for the guesses of mtpDraft.",
  },
  prefixReuse: {
    kind: "boolean",
    to: "plan",
    default: true,
    flag: { name: "no-prefix-reuse", sets: false, help: "Compute every conversation for itself." },
    help: "Shares what was computed between conversations that begin alike, in whole blocks of 32 tokens.",
  },
} as const satisfies Group;

/** Where the engine runs. */
export const runtime = {
  threads: {
    kind: { integer: [1, 64] },
    to: "host",
    otherwise: "free cores, at most 8",
    unit: "threads",
    flag: { value: "N" },
    help: "Threads to compute with; 1 takes the build without threads.",
  },
  flavour: {
    kind: { values: ["auto", "relaxed", "simd128"] },
    to: "host",
    default: "auto",
    flag: { value: "F" },
    help: "Which build runs; auto takes the fastest one that this runtime runs correctly.",
  },
  dotProduct: {
    kind: { values: ["auto", "dot4", "dot2"] },
    to: "host",
    default: "auto",
    was: "kernel",
    flag: { value: "D" },
    help: "How products are summed, four or two to a lane; auto measures which one is faster, and a cache keeps it for a week.",
  },
  weightPrefetch: {
    kind: { values: ["auto", "off", "near", "pages"] },
    to: "host",
    default: "auto",
    flag: { value: "P" },
    help: "Which weights kernels touch ahead of their use: none, the next lines, or a line of each of the next pages; auto measures for each kind of weights what is fastest, and a cache keeps it for a week.",
  },
} as const satisfies Group;

/** How bytes come from servers. */
export const source = {
  cache: {
    kind: "cache",
    to: "host",
    default: true,
    flag: {
      value: "DIR",
      otherwise: "ternlight in the user's caches",
      help: "The directory that keeps files from servers.",
    },
    help: "Keeps files from servers; a text names the directory that keeps them.",
  },
  verify: {
    kind: { values: ["auto", "always"] },
    to: "host",
    default: "auto",
    flag: { value: "V" },
    help: "Which cached chunks are hashed again as they are read: those of an interrupted load, or always all.",
  },
  integrity: {
    kind: "integrity",
    to: "host",
    otherwise: "none",
    flag: { value: "SHA256" },
    help: "The SHA-256 that the file must have, or an object of them by file name.",
  },
  connections: {
    kind: { integer: [1, 16] },
    to: "host",
    default: 4,
    unit: "requests",
    flag: { value: "N" },
    help: "Byte ranges that are requested from a server at once.",
  },
} as const satisfies Group;

/** The rest of a load. */
export const loading = {
  maxAdapterBytes: {
    kind: { integer: [0, 2 ** 31] },
    to: "host",
    default: 128 * 2 ** 20,
    unit: "bytes",
    was: "adapterBytes",
    flag: { value: "N" },
    help: "Memory that all adapters together may take.",
  },
  maxPartBytes: {
    kind: { integer: [1, 2 ** 32] },
    to: "host",
    otherwise: "what 4 GiB leave for a model",
    unit: "bytes",
    flag: { value: "N" },
    help: "Bytes of a model in one WebAssembly memory; a larger one is split by layers over several.",
  },
  chatTemplate: {
    kind: "text",
    to: "host",
    otherwise: "the model's own",
    flag: { value: "FILE|TEMPLATE" },
    help: 'The chat template to use; "embedded" takes the file\'s own even where it is known to be wrong.',
  },
  prefill: {
    kind: "prefill",
    to: "host",
    otherwise: "none",
    flag: {
      value: "TEXT",
      help: "A text that is computed while the weights come; prompts that begin with it go on from there.",
    },
    help: "A prompt that is computed while the weights come: a text, token ids, messages or a saved session.",
  },
  warmup: {
    kind: "boolean",
    to: "host",
    otherwise: "true in pages, false elsewhere",
    flag: { name: "idle-warmup", help: "Warms up behind the load until a call comes; a server, before it is ready." },
    help: "Warms up in idle time behind the load, as model.warmup() does, until a call comes.",
  },
  prefault: {
    kind: "boolean",
    to: "host",
    default: false,
    flag: {},
    help: "Writes to every page of weights, KV cache and scratch at the load, so that no token waits for the system to find one.",
  },
  fit: {
    kind: { values: ["none", "auto"] },
    to: "host",
    default: "none",
    flag: { value: "F" },
    help: "With auto, takes the nearest settings with which the model fits in memory, and says so in info.warnings.",
  },
  health: {
    kind: "health",
    to: "host",
    default: false,
    flag: { help: "Watches the model's health while it runs." },
    help: "Watches the model's health while it runs; an object sets the share of a core that this may take, and thresholds.",
  },
  userTiming: {
    kind: "boolean",
    to: "host",
    default: false,
    was: "spans",
    flag: {},
    help: "Records the load and every request with performance.measure.",
  },
} as const satisfies Group;

/** What reports on a call and ends it. */
export const progress = {
  onProgress: {
    kind: "function",
    to: "caller",
    otherwise: "none",
    help: "Called as bytes arrive, at most every 50 ms, and at each change of phase.",
  },
} as const satisfies Group;

export const abort = {
  signal: {
    kind: "signal",
    to: "caller",
    otherwise: "none",
    help: "Aborts the call, which rejects with the signal's reason.",
  },
} as const satisfies Group;

/** How much memory a model may take, where that is less than there is. */
export const fitting = {
  memory: {
    kind: { integer: [1, 2 ** 53 - 1] },
    to: "caller",
    otherwise: "what the runtime has free, at most 8 WebAssembly memories of 4 GiB",
    unit: "bytes",
    flag: { value: "SIZE", read: "bytes" },
    help: "Memory that the model may take.",
  },
} as const satisfies Group;

export const inspecting = {
  weights: {
    kind: "boolean",
    to: "caller",
    default: false,
    flag: {},
    help: "Reads the weights too, which tells the share of zeros.",
  },
} as const satisfies Group;

export const examining = {
  load: {
    kind: "object",
    to: "caller",
    otherwise: "none",
    help: "Options with which the model is to be loaded; with them an address is examined as a model too.",
  },
} as const satisfies Group;

/** What an edge worker brings along. */
export const edge = {
  wasm: {
    kind: "module",
    to: "caller",
    otherwise: "required",
    help: "The engine: the compiled module of single-relaxed.wasm or single-simd128.wasm.",
  },
  constrain: {
    kind: "module",
    to: "caller",
    otherwise: "none",
    help: "The compiled module of constrain.wasm, which responseFormat and toolChoice need.",
  },
} as const satisfies Group;
