/** Every flag there is; commands name theirs. */

export interface Flag {
  short?: string;
  /** What stands for its value in usage lines; a switch has none. */
  value?: string;
  /** The option of the API that it sets … */
  option?: string;
  /** … and how its text becomes the option's value. */
  read?(text: string): unknown;
  many?: true;
  help: string;
}

/** What is no number stays text, which the API's own checks refuse, naming the range. */
export const number = (text: string): number | string => (text.trim() === "" || Number.isNaN(+text) ? text : +text);

/** `12=-inf,40=2.5` */
const biases = (text: string) =>
  Object.fromEntries(
    text.split(",").map((pair) => {
      const [id = "", bias = ""] = pair.split("=");
      return [id.trim(), bias.trim() === "-inf" ? -Infinity : number(bias)];
    }),
  );

export const flags = {
  prompt: { short: "p", value: "TEXT", help: "the text itself" },
  ids: { value: "1,2,3", help: "token ids, fed exactly as given" },
  "max-tokens": { short: "n", value: "N", option: "maxTokens", read: number, help: "at most N tokens" },
  temp: {
    value: "T",
    option: "temperature",
    read: number,
    help: "temperature; 0 always takes the likeliest token (default 0.7, or the model's own)",
  },
  "top-k": { value: "K", option: "topK", read: number, help: "of the K likeliest tokens; 0: of all (default 40)" },
  "top-p": {
    value: "P",
    option: "topP",
    read: number,
    help: "of the likeliest tokens that together reach P (default 0.95)",
  },
  "min-p": {
    value: "M",
    option: "minP",
    read: number,
    help: "of tokens at least M times as likely as the likeliest (default 0)",
  },
  "dynamic-temp": {
    value: "R",
    option: "dynamicTemperature",
    read: number,
    help: "moves the temperature by R at most, by how undecided the model is (default 0)",
  },
  "dynamic-exponent": {
    value: "E",
    option: "dynamicExponent",
    read: number,
    help: "above 1 keeps it low until the model is very undecided (default 1)",
  },
  "adaptive-top-k": { option: "adaptiveTopK", help: "of these only the ones that stand out from the others" },
  "typical-p": {
    value: "P",
    option: "typicalP",
    read: number,
    help: "of the most typical tokens that together reach P (default 1)",
  },
  "top-n-sigma": {
    value: "N",
    option: "topNSigma",
    read: number,
    help: "of tokens within N standard deviations of the likeliest; 0: of all (default 0)",
  },
  "xtc-probability": {
    value: "P",
    option: "xtcProbability",
    read: number,
    help: "how often the likeliest tokens are dropped (default 0)",
  },
  "xtc-threshold": {
    value: "P",
    option: "xtcThreshold",
    read: number,
    help: "of tokens at least this probable the last stays (default 0.1)",
  },
  "repetition-penalty": {
    value: "R",
    option: "repetitionPenalty",
    read: number,
    help: "makes tokens seen before less likely; 1 is off (default 1)",
  },
  "frequency-penalty": {
    value: "F",
    option: "frequencyPenalty",
    read: number,
    help: "off a token's logit for every time it came (default 0)",
  },
  "presence-penalty": {
    value: "P",
    option: "presencePenalty",
    read: number,
    help: "off a token's logit if it came (default 0)",
  },
  "penalty-last-n": {
    value: "N",
    option: "penaltyLastN",
    read: number,
    help: "tokens that the penalties look back on; 0: all (default 0)",
  },
  "dry-multiplier": {
    value: "M",
    option: "dryMultiplier",
    read: number,
    help: "DRY: makes it unlikely that a repetition goes on; 0 is off (default 0)",
  },
  "dry-base": {
    value: "B",
    option: "dryBase",
    read: number,
    help: "grows with every token of a repetition by this factor (default 1.75)",
  },
  "dry-allowed-length": {
    value: "N",
    option: "dryAllowedLength",
    read: number,
    help: "shorter repetitions are free (default 2)",
  },
  "dry-last-n": {
    value: "N",
    option: "dryLastN",
    read: number,
    help: "tokens that DRY looks back on; 0: all (default 0)",
  },
  "dry-breaker": {
    value: "TEXT",
    option: "dryBreakers",
    many: true,
    help: "no repetition reaches over it; may be given several times",
  },
  "mirostat-tau": {
    value: "T",
    option: "mirostatTau",
    read: number,
    help: "mirostat 2: the surprise to aim at, in bits; 0 is off (default 0)",
  },
  "mirostat-eta": { value: "E", option: "mirostatEta", read: number, help: "how fast it follows (default 0.1)" },
  "logit-bias": {
    value: "ID=B,…",
    option: "logitBias",
    read: biases,
    help: "added to the logits of these ids; -inf forbids one",
  },
  ban: {
    value: "TEXT",
    option: "bannedSequences",
    many: true,
    help: "a text that must not come; may be given several times",
  },
  samplers: {
    value: "A,B,…",
    option: "samplers",
    read: (text: string) => text.split(","),
    help: "the chain's links in their order (default penalties,dry,topNSigma,topK,typicalP,topP,minP,xtc,temperature)",
  },
  preset: {
    value: "P",
    option: "preset",
    help: "model takes what the model's generation_config says, none does not (default model)",
  },
  logprobs: {
    value: "N",
    option: "logprobs",
    read: number,
    help: "with --json: how likely each token was, and the N likeliest",
  },
  speculate: {
    option: "speculate",
    help: "check guesses from the text so far; the same answer, in fewer steps where it repeats",
  },
  preprocess: {
    value: "P",
    option: "preprocess",
    help: "safe: without invisible characters and runs of spaces or emoji (default none)",
  },
  seed: { value: "S", option: "seed", read: number, help: "same seed, same tokens (default: random)" },
  stop: { value: "TEXT", option: "stop", many: true, help: "a text that ends the answer; may be given several times" },
  "json-schema": { value: "FILE|JSON", help: "keep to a JSON schema, given as it is or in a file" },
  regex: { value: "R", help: "keep to a regular expression" },
  grammar: { value: "FILE", help: "keep to a grammar in Lark's syntax, from its rule start" },
  adapter: {
    value: "FILE[=SCALE]",
    many: true,
    help: "a LoRA adapter (PEFT's folder or a GGUF), its effect times SCALE (default 1); may be given several times",
  },
  "adapter-bytes": {
    value: "N",
    option: "adapterBytes",
    read: number,
    help: "memory that adapters may take together (default 134217728)",
  },
  "ignore-eos": { option: "ignoreEos", help: "go on at the model's end tokens" },
  "on-context-full": {
    value: "W",
    option: "onContextFull",
    help: "stop, error, or shift: forget the middle and go on (default stop)",
  },
  completions: {
    value: "N",
    option: "n",
    read: number,
    help: "answers to the one prompt, computed side by side, with seeds S, S + 1 … (default 1)",
  },
  session: { value: "FILE", help: "go on from the conversation in FILE, if it is there, and keep this one in it" },
  "no-special": { help: "do not add what the tokenizer adds to a text (BOS)" },
  all: { help: "one row for every id, not for the last one alone" },
  window: { value: "N", option: "window", read: number, help: "tokens of a window (default 512)" },
  weights: { help: "read the weights too, for the shares of zeros (default for local files)" },
  "no-weights": { help: "read the header alone (default for URLs)" },
  strict: { value: "KIND", help: "1bit or ternary: fail unless the matrices of the layers are nothing else" },
  type: { value: "T", help: "of the layers' matrices: tq2_0, tq1_0, q1_0 or i2_s (default: by the source's codes)" },
  embedding: { value: "T", help: "of the embedding: keep, f16, q8_0, q6_k or q4_0 (default keep)" },
  head: { value: "T", help: "of a head that is not the embedding (default keep)" },
  force: { help: "replace the file if there is one" },
  threads: { value: "N", option: "threads", read: number, help: "threads to compute with; 1 takes the single build" },
  flavour: { value: "F", option: "flavour", help: "auto, relaxed or simd128" },
  kernel: { value: "K", option: "kernel", help: "how products are summed: auto, dot4 or dot2" },
  kv: { value: "C", option: "kv", help: "how keys and values are kept: auto, f32, f16, fp8, q8, q4 or q2" },
  activations: { value: "A", option: "activations", help: "auto, int8, int14 or float" },
  context: { value: "N", option: "contextLength", read: number, help: "positions that a conversation may hold" },
  "prefill-chunk": {
    value: "N",
    option: "prefillChunk",
    read: number,
    help: "prompt tokens computed in one piece (default 256)",
  },
  "max-sequences": {
    value: "N",
    option: "maxSequences",
    read: number,
    help: "requests computed together; more wait (default 8)",
  },
  "max-batch-tokens": {
    value: "N",
    option: "maxBatchTokens",
    read: number,
    help: "tokens of one step, prompts and answers together (default 2048)",
  },
  "max-queue": { value: "N", option: "maxQueue", read: number, help: "requests that may wait (default 32)" },
  "cache-tokens": {
    value: "N",
    option: "cacheTokens",
    read: number,
    help: "tokens whose keys and values are kept (default: up to four contexts within 256 MB)",
  },
  "first-come": { option: "firstCome", help: "take requests as they come, and let no short ones pass" },
  load: { help: "many clients at once: what they wait for, and whether each gets what it gets alone" },
  clients: { value: "N", option: "clients", read: number, help: "with --load: clients (default 32)" },
  seconds: { value: "N", option: "seconds", read: number, help: "with --load: how long (default 30)" },
  decode: { value: "N", option: "decode", read: number, help: "tokens after the first (default 32)" },
  batch: { value: "N", option: "batch", read: number, help: "conversations side by side (default 1)" },
  ctx: { value: "N", option: "ctx", read: number, help: "tokens that each holds before its prompt (default 0)" },
  warmup: { value: "N", option: "warmup", read: number, help: "runs that do not count (default 1)" },
  repeat: { value: "N", option: "repeat", read: number, help: "runs that do (default 5)" },
  profile: { option: "profile", help: "show where the time goes, operation by operation, in runs of their own" },
  trace: {
    option: "trace",
    help: "show each matrix, and the range of what it reads and writes, for 16 tokens and one",
  },
  "no-roofline": { help: "do not measure what this machine reads and multiplies at best" },
  shape: { value: "S", help: "a model made here of random weights, by name or with other sizes: 2b4t,layers=4" },
  "embedding-type": { value: "T", help: "the storage type of its embedding and head" },
  layout: {
    value: "L",
    option: "layout",
    help: "auto packs what turns out to be ternary; stored keeps the file's types",
  },
  i2s: { value: "N", option: "i2s", help: "values that an I2_S file interleaves: auto (ask the weights), 128 or 64" },
  cache: { value: "DIR", option: "cache", help: "where what comes from servers is kept (default: the system's place)" },
  "no-cache": { help: "keep nothing of what comes from servers, and take nothing from there" },
  verify: {
    value: "V",
    option: "verify",
    help: "always hashes what comes from the cache, and fetches damage anew; auto",
  },
  integrity: { value: "SHA256", option: "integrity", help: "refuse the file unless this is its hash" },
  connections: { value: "N", option: "connections", read: number, help: "ranges asked for at once (default 4)" },
  json: { help: "print one JSON object on stdout" },
  debug: { help: "show where an error comes from" },
  help: { short: "h", help: "show this help" },
  version: { short: "v", help: "show the version" },
} satisfies Record<string, Flag>;

export type FlagName = keyof typeof flags;

export const flag = (name: FlagName): Flag => flags[name];

/** What `load` takes, and what of it a model's plan depends on. */
export const plan: readonly FlagName[] = ["kv", "activations", "context", "prefill-chunk", "layout", "i2s"];
export const bytes: readonly FlagName[] = ["cache", "no-cache", "verify", "integrity", "connections"];
export const engine: readonly FlagName[] = ["threads", "flavour", "kernel", ...plan, ...bytes];
/** What `load` takes where many ask at once. */
export const serving: readonly FlagName[] = [
  "max-sequences",
  "max-batch-tokens",
  "max-queue",
  "cache-tokens",
  "first-come",
];
export const common: readonly FlagName[] = [...engine, "json", "debug", "help", "version"];

export const sampling: readonly FlagName[] = [
  "max-tokens",
  "temp",
  "dynamic-temp",
  "dynamic-exponent",
  "top-k",
  "adaptive-top-k",
  "top-p",
  "min-p",
  "typical-p",
  "top-n-sigma",
  "xtc-probability",
  "xtc-threshold",
  "repetition-penalty",
  "frequency-penalty",
  "presence-penalty",
  "penalty-last-n",
  "dry-multiplier",
  "dry-base",
  "dry-allowed-length",
  "dry-last-n",
  "dry-breaker",
  "mirostat-tau",
  "mirostat-eta",
  "logit-bias",
  "ban",
  "samplers",
  "preset",
  "logprobs",
  "preprocess",
  "speculate",
  "seed",
  "stop",
  "ignore-eos",
  "on-context-full",
];

/** As help shows it: `-n, --max-tokens N`. */
export function spelled(name: FlagName, { short, value }: Flag = flag(name)): string {
  return `${short ? `-${short}, ` : ""}--${name}${value ? ` ${value}` : ""}`;
}
