/**
 * Tokenizers, templates and texts come from strangers: the bounds of what is accepted of them, and why they are that high. Work that
 * no size bounds is counted in steps (patterns, templates) and ends with an error of its own, also where no watchdog could end
 * the engine from outside.
 */

/** UTF-16 units in one text to encode: about a million tokens, eight times the longest context known. */
export const MAX_TEXT = 4 * 1024 * 1024;

/** UTF-16 units of a prompt that is encoded whole before its tokens are left out: a tenth of a second. */
export const COUNTED_TEXT = 256 * 1024;

/** Steps of a normalizer or a pre-tokenizer: the longest known has seven. */
export const MAX_PARTS = 64;

/** How many times longer a normalizer may make a text (a space becomes three units), and the units that it may add to any. */
export const MAX_GROWTH = 8;
export const MAX_GROWTH_UNITS = 1024 * 1024;

/** Ids in a vocabulary: four times the largest one known (262,144). */
export const MAX_VOCAB = 1024 * 1024;

/** UTF-16 units in one token: the longest known has 256; taking a token apart costs its length squared. */
export const MAX_TOKEN = 1024;

/** UTF-16 units of what a decoder makes of one token. */
export const MAX_PIECE = 8 * MAX_TOKEN;

/** UTF-16 units of all tokens of a Unigram vocabulary: the longest known has about 1,500,000; each may become a node of a tree. */
export const MAX_UNIGRAM_TEXT = 4 * 1024 * 1024;

/** UTF-16 units in an added token: the longest known has about 60; every text is searched for all of them. */
export const MAX_ADDED = 256;

/** Units of messages, and of what a template makes of them, that are compared with special tokens: those after a `<`, mostly. */
export const MAX_GUARD_LOOKS = 16 * 1024 * 1024;

/** UTF-16 units of all added tokens together: the longest known lists have about 100,000. */
export const MAX_ADDED_TEXT = 512 * 1024;

/**
 * What a Unigram vocabulary may look at for each unit of a text: units of tokens that begin there, and pairs of those that end and
 * begin there. Published ones take about 30. In a row of spaces they take 400, for which each text may take more.
 */
export const MAX_LATTICE = 64;
export const LATTICE_SPARE = 16 * 1024 * 1024;

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

/**
 * Steps of a template: nodes evaluated, turns of loops, and an eighth of the length of each text that is read or made. A thousand
 * messages of a thousand characters take about 700,000.
 */
export const MAX_STEPS = 4_000_000;

/** Milliseconds that a template may take, on a slow machine too. Where clocks stand still, the steps alone end it. */
export const MAX_RENDER_MS = 1500;

/** Stop texts of one request, and the length of each: every piece is compared with all of them. */
export const MAX_STOPS = 64;
export const MAX_STOP_LENGTH = 1024;
