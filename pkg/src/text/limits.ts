/**
 * Tokenizers, templates and texts come from strangers: what this room accepts of them, and why that much. No cap here
 * stops a pre-tokenizer's pattern that backtracks, nor a filter of the library's on a long text: that takes a watchdog
 * outside, which ends the worker.
 */

/** UTF-16 units in one text to encode: about a million tokens, eight times the longest context known. */
export const MAX_TEXT = 4 * 1024 * 1024;

/** Ids in a vocabulary: four times the largest one known (262,144). */
export const MAX_VOCAB = 1024 * 1024;

/** UTF-16 units in one token: the longest known has 256; taking a token apart costs its length squared. */
export const MAX_TOKEN = 1024;

/** UTF-16 units in an added token: the longest known has about 60; every text is searched for all of them. */
export const MAX_ADDED = 256;

/** UTF-16 units of all added tokens together: the longest known lists have about 100,000. */
export const MAX_ADDED_TEXT = 512 * 1024;

/** Merges of a vocabulary: the largest known list has 515,000. */
export const MAX_MERGES = 4 * 1024 * 1024;

/**
 * Merges that a scored (SentencePiece) vocabulary stands for: the largest known one, of 262,144 tokens, makes about
 * 600,000. Every token can be cut at each of its characters, so the number is up to the header's length.
 */
export const MAX_SCORED_MERGES = 2 * 1024 * 1024;

/**
 * Characters looked at to find those merges: each cut of a token hashes all of the token, so the work is the sum of the
 * squared lengths. The largest known vocabulary takes about 20 million.
 */
export const MAX_MERGE_WORK = 128 * 1024 * 1024;

/** UTF-16 units of all scored merges together, each of which the library keeps as a text. Largest known: 5 million. */
export const MAX_MERGE_TEXT = 32 * 1024 * 1024;

/** UTF-16 units in a chat template: the longest published ones have about 30,000. */
export const MAX_TEMPLATE = 256 * 1024;

/** Length of a run of white space in a template: the lexer's cost is template length times this. */
export const MAX_TEMPLATE_SPACE = 1024;

/** UTF-16 units in anything a template builds: what it renders has to be encoded afterwards. */
export const MAX_RENDERED = MAX_TEXT;

/** Elements of a list that a template builds: a message each would already overflow every context. */
export const MAX_LIST = 1024 * 1024;

/** Steps of a template: nodes evaluated, loop turns, and lengths made. A thousand messages of a thousand characters take 400,000. */
export const MAX_STEPS = 4_000_000;

/** Stop texts of one request, and the length of each: every piece is compared with all of them. */
export const MAX_STOPS = 64;
export const MAX_STOP_LENGTH = 1024;
