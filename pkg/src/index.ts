import { manage } from "./api/cache.ts";
import { canRun as canRunWith, inspect as inspectWith, load as loadWith, type Outside } from "./api/model.ts";
import { keptOpener, pageAddress, persist, spawnEngine } from "./platform/browser.ts";
import type {
  CanRun,
  Description,
  InspectOptions,
  LoadOptions,
  Model,
  ModelCache,
  ModelSource,
} from "./types/index.ts";

export { EngineError, type ErrorCode, type ErrorDetail } from "./types/errors.ts";
export type * from "./types/index.ts";

const outside: Outside = { spawnEngine, persist, base: pageAddress() };

/** What loads have kept in this origin's storage. */
export const cache: ModelCache = manage(keptOpener(), pageAddress());

/**
 * Loads a model.
 *
 * @param source where its bytes are: a URL, a file, a folder
 * @throws {EngineError} where the file is none that runs here, or does not arrive
 */
export const load = (source: ModelSource, options?: LoadOptions): Promise<Model> => loadWith(outside, source, options);

/** Tells what a model is from its header, without loading it. */
export const inspect = (source: ModelSource, options?: InspectOptions): Promise<Description> =>
  inspectWith(outside, source, options);

/** Tells from its header whether a model fits in memory with these options, and if not, the nearest ones that do. */
export const canRun = (source: ModelSource, options?: LoadOptions): Promise<CanRun> =>
  canRunWith(outside, source, options);
