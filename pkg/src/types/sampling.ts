/** How the next token is chosen. */

/**
 * The links of the sampler chain, in their default order, which is llama.cpp's. `logitBias` and `bannedSequences` come before them,
 * `mirostatTau` and the draw after them. Each link works on the tokens that the ones before it left, at the temperature set by then.
 * `penalties` are those for repetition, frequency and presence.
 */
export type Sampler = "penalties" | "dry" | "topNSigma" | "topK" | "typicalP" | "topP" | "minP" | "xtc" | "temperature";

/** Where a default says "or the model's", the model's generation_config decides if it has a value. */
export interface SamplingOptions {
  /**
   * Higher values draw less likely tokens more often; 0 always takes the most likely token, whatever the other options cut.
   * @default 0.7, or the model's
   */
  temperature?: number | undefined;
  /** Moves the temperature up and down by at most this much, by how undecided the model is; 0 is off. @default 0 */
  dynamicTemperature?: number | undefined;
  /** Values above 1 keep the dynamic temperature low until the model is very undecided. @default 1 */
  dynamicExponent?: number | undefined;
  /** Keeps the k most likely tokens; 0 keeps all. @default 40 tokens, or the model's */
  topK?: number | undefined;
  /** Keeps of the top k only tokens whose logit is two standard deviations above their mean. @default false */
  adaptiveTopK?: boolean | undefined;
  /** Keeps the fewest most likely tokens whose probabilities reach p; 1 keeps all. @default 0.95, or the model's */
  topP?: number | undefined;
  /** Drops tokens that are less likely than p times the most likely one; 0 keeps all. @default 0, or the model's */
  minP?: number | undefined;
  /**
   * Keeps the tokens whose surprise is nearest to the entropy, until their probabilities reach p; 1 keeps all.
   * @default 1, or the model's
   */
  typicalP?: number | undefined;
  /** Keeps tokens whose logit is within n standard deviations of the highest; 0 keeps all. @default 0 standard deviations */
  topNSigma?: number | undefined;
  /**
   * XTC: the probability with which the most likely tokens are dropped, so that a less likely one comes; 0 is off.
   * @default 0, or the model's
   */
  xtcProbability?: number | undefined;
  /** XTC leaves only the least likely of the tokens that are at least this probable. @default 0.1, or the model's */
  xtcThreshold?: number | undefined;
  /**
   * Divides the logits of tokens that came before by this, or multiplies them where they are negative; 1 is off.
   * @default 1, or the model's
   */
  repetitionPenalty?: number | undefined;
  /** Subtracted from a token's logit once for every time it has come; 0 is off. @default 0 */
  frequencyPenalty?: number | undefined;
  /** Subtracted once from the logit of every token that has come; 0 is off. @default 0 */
  presencePenalty?: number | undefined;
  /** How many of the last tokens, prompt included, these three penalties look at; 0 looks at all. @default 0 tokens */
  penaltyLastN?: number | undefined;
  /**
   * DRY: subtracts multiplier · base^(length - allowedLength) from the logit of a token that would continue a repetition of that length;
   * 0 is off.
   * @default 0
   */
  dryMultiplier?: number | undefined;
  /** The base of DRY's penalty. @default 1.75 */
  dryBase?: number | undefined;
  /** Repetitions that are shorter than this have no penalty. @default 2 tokens */
  dryAllowedLength?: number | undefined;
  /** How many of the last tokens, prompt included, DRY searches for repetitions; 0 searches all. @default 0 tokens */
  dryLastN?: number | undefined;
  /**
   * No repetition extends over a token whose text contains one of these. Without a tokenizer there are none.
   * @default newline, colon, double quote, asterisk
   */
  dryBreakers?: readonly string[] | undefined;
  /** Mirostat 2: the surprise to aim at; it replaces all links that cut; 0 is off. @default 0 bits */
  mirostatTau?: number | undefined;
  /** How fast mirostat adapts. @default 0.1 */
  mirostatEta?: number | undefined;
  /** Added to the logits of these token ids; -Infinity forbids one. @default none */
  logitBias?: Readonly<Record<number, number>> | undefined;
  /**
   * Texts or lists of ids that must not come. A text is banned as the ids that the tokenizer gives it at the beginning, after a space and
   * within a line; other ids can spell the same letters.
   * @default none
   */
  bannedSequences?: readonly (string | readonly number[])[] | undefined;
  /** The order of the chain; a link that is not named is off. @default penalties, dry, topNSigma, topK, typicalP, topP, minP, xtc, temperature */
  samplers?: readonly Sampler[] | undefined;
  /** `none` ignores the sampling values of the model's generation_config. @default "model" */
  generationConfig?: "model" | "none" | undefined;
  /** The same seed gives the same tokens in every runtime. An integer from 0 to 2^53 - 1. @default random */
  seed?: number | undefined;
  /** Reports with every token its log-probability, and those of this many of the most likely tokens. At most 100. @default none */
  logprobs?: number | undefined;
  /**
   * Guesses that what followed the last two to four tokens before follows again, checks up to 6 guesses in one step, and keeps what the
   * model would have chosen anyway: the same answer in fewer steps where a text repeats itself or its prompt. Where fewer than about
   * seven guesses in ten are right it pauses, for 64 tokens at first and for 512 at most. Has no effect beside `logitsProcessor`.
   * @default false
   */
  promptLookup?: boolean | undefined;
  /**
   * Checks a guess of the model's MTP head in each step of an answer that runs alone, and keeps what the model would have chosen anyway:
   * the same answer, in fewer steps where guesses are right. Where too few are it pauses, as `promptLookup` does, whose guesses go first.
   * Has no effect without the load option `mtp`, nor beside `logitsProcessor`.
   * @default true
   */
  mtpDraft?: boolean | undefined;
}

/**
 * Called before every choice with one logit for every token and all ids that the conversation holds, prompt included. It changes the
 * logits in place or returns others; -Infinity forbids a token. What is left goes through the samplers. Other generations run on
 * meanwhile. What it throws rejects the generation. Afterwards the array belongs to the engine again and is empty here: copy what is to
 * stay.
 *
 * @param logits one value for each token of the vocabulary
 * @param tokens the ids of the conversation
 * @returns the logits to choose from; nothing where they were changed in place
 */
export type LogitsProcessor = (logits: Float32Array, tokens: number[]) => ChangedLogits | Promise<ChangedLogits>;

// biome-ignore lint/suspicious/noConfusingVoidType: a function that changes them in place returns nothing
type ChangedLogits = Float32Array | undefined | void;
