/** The tools as functions of sources, for the entry of each runtime. */

import { inspect, load, type Outside } from "../api/model.ts";
import { checkAll, checkOf, type Known, wrong } from "../options/check.ts";
import type { Kind } from "../options/option.ts";
import { plan } from "../options/table/load.ts";
import type { Paths } from "../source/source.ts";
import { toSpec } from "../source/spec.ts";
import type { LoadOptions, Model, ModelSource } from "../types/index.ts";
import { type CheckOptions, type Checkup, checkModel } from "./check.ts";
import { measureQuality, type QualityOptions, type QualityReport } from "./measure.ts";
import { type Pruned, type PruneOptions, pruneModel } from "./prune.ts";
import { type Sliced, type SliceOptions, sliceModel } from "./slice.ts";

/** What the tools need of their runtime. */
export interface QualityOutside extends Outside {
  paths?: Paths;
}

const opening = (outside: QualityOutside, source: ModelSource) => ({
  spec: toSpec(source, outside),
  paths: outside.paths,
});

const loadWith =
  (outside: QualityOutside) =>
  (source: ModelSource, options: LoadOptions): Promise<Model> =>
    load(outside, source, options);

const row = (kind: Kind) => ({ kind, to: "caller", help: "" }) as const;
const most = 2 ** 31 - 1;
const common = { signal: row("signal"), onProgress: row("function") };

const CHECK: Known = { run: row("boolean"), ...common };
const SLICE: Known = {
  keep: row({ integer: [1, most] }),
  text: row("text"),
  tokens: row("list"),
  signal: common.signal,
};
const PRUNE: Known = {
  targetLayers: row({ integer: [1, 1024] }),
  texts: row("texts"),
  by: row({ values: ["variance", "influence", "search"] }),
  tokens: row({ integer: [16, most] }),
  curveTo: row({ integer: [1, 1024] }),
  load: row("object"),
  memo: row("object"),
  ...common,
};
const QUALITY: Known = {
  kv: row("texts"),
  activations: row("texts"),
  head: row("texts"),
  against: row("object"),
  tasks: row("object"),
  window: row({ integer: [2, most] }),
  tokens: row({ integer: [2, most] }),
  load: row("object"),
  ...common,
};

export async function check(
  outside: QualityOutside,
  source: ModelSource,
  options: CheckOptions = {},
): Promise<Checkup> {
  const context = {
    opening: opening(outside, source),
    source,
    load: loadWith(outside),
    inspect: (source: ModelSource, options: object) => inspect(outside, source, options),
  };
  return checkModel(context, checkAll("check", CHECK, options));
}

/** Refuses a value that a load would refuse. */
export function checkLists(options: Pick<QualityOptions, "kv" | "activations" | "head">): void {
  const lists = [
    ["kv", plan.kvCacheType.kind],
    ["activations", plan.activations.kind],
    ["head", plan.head.kind],
  ] as const;
  for (const [name, kind] of lists) {
    const fits = checkOf(kind);
    for (const value of options[name] ?? []) {
      const expected = fits(value);
      if (expected !== null) throw wrong("quality", name, `a list of ${expected}`, value);
    }
  }
}

export async function quality(
  outside: QualityOutside,
  source: ModelSource,
  text: string,
  options: QualityOptions = {},
): Promise<QualityReport> {
  const { against, tasks, ...rest } = options;
  checkAll("quality", QUALITY, rest);
  if (typeof text !== "string") throw wrong("quality", "text", "a text", text);
  checkLists(options);
  return measureQuality(loadWith(outside), source, text, options);
}

export async function slice(outside: QualityOutside, source: ModelSource, options: SliceOptions): Promise<Sliced> {
  return sliceModel(opening(outside, source), checkAll("slice", SLICE, options));
}

export async function prune(outside: QualityOutside, source: ModelSource, options: PruneOptions): Promise<Pruned> {
  const { memo, ...rest } = options;
  checkAll("prune", PRUNE, rest);
  return pruneModel(loadWith(outside), opening(outside, source), options);
}
