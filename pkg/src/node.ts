import { manage, wholeFiles } from "./api/cache.ts";
import { located, locateMethods } from "./api/located.ts";
import {
  canRun as canRunWith,
  inspect as inspectWith,
  LoadedModel,
  load as loadWith,
  type Outside,
} from "./api/model.ts";
import { OpenSession } from "./api/session.ts";
import { showObjects } from "./api/shown.ts";
import { findOnHub, openStore, spawnEngine, toPath } from "./platform/node.ts";
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

showObjects();
for (const { prototype } of [LoadedModel, OpenSession]) locateMethods(prototype);

export const cache: ModelCache = manage(openStore, null);

const outside: Outside = {
  spawnEngine,
  base: null,
  toPath,
  onHub: findOnHub((kept) => wholeFiles(cache, kept)),
};

export const load = located(
  (source: ModelSource, options?: LoadOptions): Promise<Model> => loadWith(outside, source, options),
);

export const inspect = located(
  (source: ModelSource, options?: InspectOptions): Promise<Description> => inspectWith(outside, source, options),
);

export const canRun = located(
  (source: ModelSource, options?: CanRunOptions): Promise<CanRun> => canRunWith(outside, source, options),
);
