import { manage, wholeFiles } from "./api/cache.ts";
import { canRun as canRunWith, inspect as inspectWith, load as loadWith, type Outside } from "./api/model.ts";
import { findOnHub, frame, keptOpener, pageAddress, persist, showsFrames, spawnEngine } from "./platform/browser.ts";
import type {
  CanRun,
  CanRunOptions,
  Description,
  InspectOptions,
  LoadOptions,
  Model,
  ModelCache,
  ModelSource,
} from "./types/index.ts";

export { repetitionScore } from "./metrics/repetition.ts";
export { jsonSchema } from "./options/json_schema.ts";
export { EngineError, type ErrorCode, type ErrorDetail } from "./types/errors.ts";
export type * from "./types/index.ts";

const outside: Outside = {
  spawnEngine,
  persist,
  base: pageAddress(),
  ...(showsFrames() && { frame }),
  onHub: findOnHub((kept) => wholeFiles(cache, kept)),
};

/**
 * What loads have kept: in a page in its origin's storage, elsewhere in a directory of the user.
 *
 * @example
 * ```ts
 * import { cache } from "ternlight";
 *
 * for (const { url, size, kept } of await cache.list()) console.log(url, `${kept} of ${size} bytes`);
 * const deleted = await cache.delete("https://example.com/models/");
 * console.log(`${deleted} files deleted`);
 * ```
 */
export const cache: ModelCache = manage(keptOpener(), pageAddress());

/**
 * Loads a model into a worker of its own.
 *
 * @param source where its bytes are: a URL, a path, a file, a folder
 * @param options how it is loaded and how it runs
 * @returns the model, ready to answer; `close()` gives its memory back
 * @throws {EngineError} `InvalidArgument` for a wrong option or source; `NotFound`, `Network` and `Truncated` where the bytes do not
 *   arrive; `BadMagic`, `BadHeader` and others where the file is damaged or of a kind that does not run; `OutOfMemory`, with the
 *   nearest options that fit in `detail.suggestion`; `UnsupportedRuntime` and `WorkerFailed` where the engine does not start
 * @example
 * ```ts
 * import { EngineError, load } from "ternlight";
 * import demo from "ternlight/demo";
 *
 * try {
 *   const model = await load(demo, {
 *     contextLength: 256,
 *     onProgress: ({ phase, loaded, total }) => console.error(phase, `${loaded} of ${total} bytes`),
 *   });
 *   console.log(model.info.architecture, model.info.threads, model.info.flavour);
 *   await model.close();
 * } catch (error) {
 *   if (error instanceof EngineError) console.error(error.code, error.detail);
 *   throw error;
 * }
 * ```
 */
export const load = (source: ModelSource, options?: LoadOptions): Promise<Model> => loadWith(outside, source, options);

/**
 * Tells what a model is, from its header alone or, with `weights`, from all of its bytes. Nothing is loaded or kept.
 *
 * @param source as of `load`
 * @returns architecture, sizes, tensors, tokenizer, and the memory that it would take
 * @throws {EngineError} as `load`, without `OutOfMemory`
 * @example
 * ```ts
 * import { inspect } from "ternlight";
 * import demo from "ternlight/demo";
 *
 * const { architecture, parameters, bitsPerWeight, kinds } = await inspect(demo);
 * console.log(architecture, parameters, bitsPerWeight.toFixed(2), kinds);
 * ```
 */
export const inspect = (source: ModelSource, options?: InspectOptions): Promise<Description> =>
  inspectWith(outside, source, options);

/**
 * Tells from its header whether a model fits in memory with these options, and if not, the nearest ones with which it does.
 *
 * @param source as of `load`
 * @param options those that `load` would be given, and `memory`, what the model may take
 * @throws {EngineError} as `load`; a model that does not fit is no error here
 * @example
 * ```ts
 * import { canRun, load } from "ternlight";
 * import demo from "ternlight/demo";
 *
 * const { ok, needed, reason, suggestion } = await canRun(demo);
 * console.log(ok ? `${needed.total} bytes` : reason);
 * if (ok || suggestion) {
 *   const model = await load(demo, suggestion ?? {});
 *   await model.close();
 * }
 * ```
 */
export const canRun = (source: ModelSource, options?: CanRunOptions): Promise<CanRun> =>
  canRunWith(outside, source, options);
