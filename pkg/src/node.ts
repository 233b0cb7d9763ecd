import { manage } from "./api/cache.ts";
import { canRun as canRunWith, inspect as inspectWith, load as loadWith, type Outside } from "./api/model.ts";
import { openStore, spawnEngine, toPath } from "./platform/node.ts";
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

const outside: Outside = { spawnEngine, base: null, toPath };

export const cache: ModelCache = manage(openStore, null);

export const load = (source: ModelSource, options?: LoadOptions): Promise<Model> => loadWith(outside, source, options);

export const inspect = (source: ModelSource, options?: InspectOptions): Promise<Description> =>
  inspectWith(outside, source, options);

export const canRun = (source: ModelSource, options?: LoadOptions): Promise<CanRun> =>
  canRunWith(outside, source, options);
