/** Tools that make a model smaller, and say what it cost. */

import { findOnHub, pageAddress, spawnEngine } from "./platform/browser.ts";
import { forSlice as optionsForSlice } from "./quality/for_slice.ts";
import * as tools from "./quality/tools.ts";
import type {
  Calibrated,
  CalibrateOptions,
  CheckOptions,
  Checkup,
  Compared,
  CompareOptions,
  NewFile,
  Pruned,
  PruneOptions,
  QualityOptions,
  QualityReport,
  Sliced,
  SliceOptions,
  TokenOptions,
} from "./quality/types.ts";
import type { ModelSource } from "./types/index.ts";

export { readTasks, scoreTasks } from "./quality/tasks.ts";
export type * from "./quality/types.ts";

const outside: tools.QualityOutside = { spawnEngine, base: pageAddress(), onHub: findOnHub() };

/**
 * Looks for what makes converted files write nonsense: a wrong pre-tokenizer, a template that ends too early, scales of zero.
 *
 * @param source as of `load`
 * @returns what was found, each with the way out; in `mended`, a new file with what can be mended
 * @throws {EngineError} as `load`, where the files cannot be opened
 * @example
 * ```ts
 * import demo from "ternlight/demo";
 * import { check } from "ternlight/quality";
 *
 * const { findings, mended } = await check(demo);
 * for (const { level, rule, message, advice } of findings) console.log(`${level} ${rule}: ${message}; ${advice}`);
 * console.log(mended ? `${mended.size} bytes to write` : "nothing to mend");
 * ```
 */
export const check = (source: ModelSource, options?: CheckOptions): Promise<Checkup> =>
  tools.check(outside, source, options);

/**
 * Measures what each setting of a model costs in quality and gains in speed and memory, on a text.
 *
 * @param source as of `load`
 * @param text what the model predicts; some thousand tokens give a narrow interval
 * @returns a row for each setting, those marked that no other one beats
 * @throws {EngineError} as `load`; `InvalidArgument` for an option that is wrong, or a text of fewer than two tokens
 * @example
 * ```ts
 * import demo from "ternlight/demo";
 * import { quality } from "ternlight/quality";
 *
 * const text = "Once upon a time there was a king who had three sons, and the youngest of them was called Hans.";
 * const { rows } = await quality(demo, text, { kv: ["f32", "q8"] });
 * for (const { kv, perplexity, kl, memory } of rows) console.log(kv, perplexity.toFixed(2), kl?.toExponential(1), memory);
 * ```
 */
export const quality = (source: ModelSource, text: string, options?: QualityOptions): Promise<QualityReport> =>
  tools.quality(outside, source, text, options);

/**
 * Compares a model with what a tool made of it, on a text that the tool has not seen: perplexity, divergence and equal winners, speed and
 * memory. Of a slice, divergence and winners are those of sentences that it has all tokens of.
 *
 * @param before as of `load`
 * @param after as of `load`, or the `file` of a result
 * @throws {EngineError} as `load`; `InvalidArgument` for a text of a few words
 * @example
 * ```ts
 * import demo from "ternlight/demo";
 * import { compare } from "ternlight/quality";
 *
 * const text = "Once upon a time there was a king who had three sons, and the youngest of them was called Hans.";
 * const { before, after } = await compare(demo, demo, text);
 * console.log(before.perplexity, after.kl, after.sameWinner);
 * ```
 */
export const compare = (
  before: ModelSource,
  after: ModelSource | NewFile,
  text: string,
  options?: CompareOptions,
): Promise<Compared> => tools.compare(outside, before, after, text, options);

/**
 * Cuts a GGUF's vocabulary to what texts need. Any text still encodes, by more tokens where some of its own are gone.
 *
 * @param source as of `load`, a GGUF
 * @returns the new file, which nothing is read for before it is streamed, and what it costs
 * @throws {EngineError} `BadMagic` for a source that is no GGUF; `InvalidArgument`, `UnsupportedSetting`
 */
export const slice = (source: ModelSource, options: SliceOptions): Promise<Sliced> =>
  tools.slice(outside, source, options);

/**
 * Makes logit options that were written for the whole vocabulary fit a slice. What names a token that is gone goes: it cannot come. Texts
 * among the banned sequences stay, and are cut into the slice's own tokens.
 *
 * @param ids of the slice's result, or of its key `ternlight.slice.ids`
 * @example
 * ```ts
 * import { forSlice } from "ternlight/quality";
 *
 * // Tokens 7 and 9 of the whole vocabulary are 0 and 1 of the slice.
 * console.log(forSlice({ logitBias: { 7: 2, 8: -1 }, bannedSequences: [[9, 7], "Hans"] }, [7, 9]));
 * // { logitBias: { "0": 2 }, bannedSequences: [ [ 1, 0 ], "Hans" ] }
 * ```
 */
export const forSlice = (options: TokenOptions, ids: ArrayLike<number>): TokenOptions => optionsForSlice(options, ids);

/**
 * Chooses how the input of each matrix is rounded: by the entropy of its int8 codes, or by the loss that rounding it causes.
 *
 * @param source as of `load`
 * @returns the map for the load option `activations`, what it comes from, and what it costs
 * @throws {EngineError} as `load`; `InvalidArgument`; `UnsupportedSetting` for a model whose matrices are all floats
 * @example
 * ```ts
 * import demo from "ternlight/demo";
 * import { load } from "ternlight";
 * import { calibrate } from "ternlight/quality";
 *
 * const texts = ["Once upon a time there was a king who had three sons, and the youngest of them was called Hans."];
 * const { map, report } = await calibrate(demo, { texts, budget: 1 });
 * for (const { activations, perplexity } of report.rows) console.log(activations, perplexity);
 * const model = await load(demo, { activations: map });
 * await model.close();
 * ```
 */
export const calibrate = (source: ModelSource, options: CalibrateOptions): Promise<Calibrated> =>
  tools.calibrate(outside, source, options);

/**
 * Takes the layers away that a GGUF needs least.
 *
 * @param source as of `load`, a GGUF
 * @returns the new file, which is read when it is streamed, and the curve of perplexity over layers
 * @throws {EngineError} `BadMagic` for a source that is no GGUF; `InvalidArgument`, `UnsupportedSetting`
 */
export const prune = (source: ModelSource, options: PruneOptions): Promise<Pruned> =>
  tools.prune(outside, source, options);
