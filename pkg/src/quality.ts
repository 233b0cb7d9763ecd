/** Tools that make a model smaller, and say what it cost. */

import { pageAddress, spawnEngine } from "./platform/browser.ts";
import * as tools from "./quality/tools.ts";
import type {
  CheckOptions,
  Checkup,
  Pruned,
  PruneOptions,
  QualityOptions,
  QualityReport,
  Sliced,
  SliceOptions,
} from "./quality/types.ts";
import type { ModelSource } from "./types/index.ts";

export { readTasks, scoreTasks } from "./quality/tasks.ts";
export type * from "./quality/types.ts";

const outside: tools.QualityOutside = { spawnEngine, base: pageAddress() };

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
 * Cuts a GGUF's vocabulary to what texts need. Any text still encodes, by more tokens where some of its own are gone.
 *
 * @param source as of `load`, a GGUF
 * @returns the new file, which nothing is read for before it is streamed, and what it costs
 * @throws {EngineError} `BadMagic` for a source that is no GGUF; `InvalidArgument`, `UnsupportedSetting`
 */
export const slice = (source: ModelSource, options: SliceOptions): Promise<Sliced> =>
  tools.slice(outside, source, options);

/**
 * Takes the layers away that a GGUF needs least.
 *
 * @param source as of `load`, a GGUF
 * @returns the new file, which is read when it is streamed, and the curve of perplexity over layers
 * @throws {EngineError} `BadMagic` for a source that is no GGUF; `InvalidArgument`, `UnsupportedSetting`
 */
export const prune = (source: ModelSource, options: PruneOptions): Promise<Pruned> =>
  tools.prune(outside, source, options);
