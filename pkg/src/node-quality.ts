import { findOnHub, openStore, paths, spawnEngine, toPath } from "./platform/node.ts";
import * as tools from "./quality/tools.ts";
import type { ModelSource } from "./types/index.ts";

export { forSlice } from "./quality/for_slice.ts";
export { readTasks, scoreTasks } from "./quality/tasks.ts";
export type * from "./quality/types.ts";

const outside: tools.QualityOutside = { spawnEngine, base: null, toPath, paths, openStore, onHub: findOnHub() };

export const check = (source: ModelSource, options?: Parameters<typeof tools.check>[2]) =>
  tools.check(outside, source, options);

export const calibrate = (source: ModelSource, options: Parameters<typeof tools.calibrate>[2]) =>
  tools.calibrate(outside, source, options);

export const quality = (source: ModelSource, text: string, options?: Parameters<typeof tools.quality>[3]) =>
  tools.quality(outside, source, text, options);

export const compare = (
  before: ModelSource,
  after: Parameters<typeof tools.compare>[2],
  text: string,
  options?: Parameters<typeof tools.compare>[4],
) => tools.compare(outside, before, after, text, options);

export const slice = (source: ModelSource, options: Parameters<typeof tools.slice>[2]) =>
  tools.slice(outside, source, options);

export const prune = (source: ModelSource, options: Parameters<typeof tools.prune>[2]) =>
  tools.prune(outside, source, options);
