/** The tools as functions of sources, for the entry of each runtime. */

import { inspect, load, type Outside } from "../api/model.ts";
import { loadInto, UnstableEngine } from "../api/unstable.ts";
import { openingOf } from "../host/opening.ts";
import type { Platform } from "../host/platform.ts";
import { checkAll, checkOf, type Known, wrong } from "../options/check.ts";
import type { Kind } from "../options/option.ts";
import { plan } from "../options/table/load.ts";
import { calibrateFlags, pruneFlags, qualityFlags, sliceFlags } from "../options/table/quality.ts";
import { groups } from "../options/table.ts";
import type { Source } from "../source/source.ts";
import { hasAddress, toSpec } from "../source/spec.ts";
import { withSource } from "../source/with_source.ts";
import type { LoadOptions, Model, ModelSource } from "../types/index.ts";
import { type Calibrated, type CalibrateOptions, calibrateModel, type Tracing } from "./calibrate.ts";
import { type CheckOptions, type Checkup, checkModel } from "./check.ts";
import { type Compared, type CompareOptions, compareModels } from "./compared.ts";
import { Gguf } from "./gguf.ts";
import { isGguf } from "./lint/model.ts";
import { measureQuality, type QualityOptions } from "./measure.ts";
import { type NewFile, type Opening, sizeOf, toBlob, withFiles } from "./new_gguf.ts";
import { type Pruned, type PruneOptions, pruneModel } from "./prune.ts";
import type { QualityReport } from "./report.ts";
import { idsWithin, type Sliced, type SliceOptions, slicedIds, sliceModel } from "./slice.ts";

/** What the tools need of their runtime. */
export interface QualityOutside extends Outside, Pick<Platform, "paths" | "openStore"> {}

interface Reading {
  signal?: AbortSignal | undefined;
  /** Options of the loads, of which it takes how files are kept. */
  load?: LoadOptions | undefined;
}

/** Works with a model that is read where it lies; one on a server through the cache that loads have, where the runtime opens one here. */
const withOpening = <T>(
  outside: QualityOutside,
  source: ModelSource,
  { signal, load = {} }: Reading,
  work: (opening: Opening) => Promise<T>,
): Promise<T> =>
  withSource(outside, source, { signal, cache: load.cache }, async (spec) => {
    if (!hasAddress(spec)) return work({ spec, paths: outside.paths });
    const context = { platform: { ...outside, hasher: undefined }, signal };
    const { paths, url } = await openingOf({ cache: load.cache }, context, () => {}, "announced");
    return work({ spec, paths, ...(url ? { url } : {}) });
  });

/** The same for tools that read a model again and again: without a cache, a GGUF is fetched once and held. */
const withHeld = <T>(
  outside: QualityOutside,
  source: ModelSource,
  reading: Reading,
  work: (opening: Opening, source: ModelSource) => Promise<T>,
): Promise<T> =>
  withOpening(outside, source, reading, async (opening) => {
    if (opening.url || !hasAddress(opening.spec)) return work(opening, source);
    const files = await withFiles(opening, reading.signal, ({ weights }) => held(weights, reading.signal));
    return files ? work({ spec: toSpec(files, outside), paths: outside.paths }, files) : work(opening, source);
  });

/** The files of a GGUF, by name; null of anything else, whose weights no tool reads twice. */
async function held(weights: readonly Source[], signal?: AbortSignal): Promise<File[] | null> {
  if (!(await isGguf(weights[0]!))) return null;
  const files: File[] = [];
  for (const source of weights) {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    for await (const bytes of source.stream(0, source.size, signal ? { signal } : {})) {
      parts.push(bytes.slice() as Uint8Array<ArrayBuffer>);
    }
    files.push(new File(parts, source.name.replace(/[?#].*$/s, "").replace(/^.*\//s, "")));
  }
  return files;
}

const loadWith =
  (outside: QualityOutside) =>
  (source: ModelSource, options: LoadOptions): Promise<Model> =>
    load(outside, source, options);

const row = (kind: Kind) => ({ kind, to: "caller", help: "" }) as const;
const common = { signal: row("signal"), onProgress: row("function") };

const CHECK: Known = { run: row("boolean"), load: row("object"), ...common };
const SLICE: Known = {
  keep: sliceFlags.keep,
  text: row("text"),
  tokens: row("list"),
  load: row("object"),
  signal: common.signal,
};
const COMPARE: Known = { load: row("object"), ...common };
const PRUNE: Known = {
  targetLayers: pruneFlags.targetLayers,
  texts: row("texts"),
  by: pruneFlags.by,
  tokens: pruneFlags.calibrationTokens,
  curveTo: pruneFlags.targetLayers,
  load: row("object"),
  memo: row("object"),
  ...common,
};
const CALIBRATE: Known = {
  texts: row("texts"),
  samples: calibrateFlags.calibrationSamples,
  entropyThreshold: calibrateFlags.entropyThreshold,
  budget: calibrateFlags.budget,
  tokens: calibrateFlags.calibrationTokens,
  gguf: row("boolean"),
  load: row("object"),
  memo: row("object"),
  ...common,
};
const QUALITY: Known = {
  kv: qualityFlags.kv,
  // Of names and maps: `checkLists` looks at each.
  activations: row("list"),
  head: qualityFlags.head,
  against: row("object"),
  tasks: row("object"),
  window: groups.perplexity.window,
  tokens: qualityFlags.tokens,
  load: row("object"),
  ...common,
};

export async function check(
  outside: QualityOutside,
  source: ModelSource,
  options: CheckOptions = {},
): Promise<Checkup> {
  const known = checkAll("check", CHECK, options);
  const runtime = {
    load: loadWith(outside),
    inspect: (source: ModelSource, options: object) => inspect(outside, source, options),
  };
  return withHeld(outside, source, known, (opening, source) => checkModel({ ...runtime, source, opening }, known));
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
  const { against, tasks, memo, ...rest } = options;
  checkAll("quality", QUALITY, rest);
  if (typeof text !== "string") throw wrong("quality", "text", "a text", text);
  checkLists(options);
  return withHeld(outside, source, rest, async (opening, source) => {
    const fileBytes = await withFiles(opening, rest.signal, async ({ weights }) => sizeOf(weights));
    const { rows, ...report } = await measureQuality(loadWith(outside), source, text, options);
    return { ...report, rows: rows.map((row) => ({ ...row, fileBytes })) };
  });
}

export async function slice(outside: QualityOutside, source: ModelSource, options: SliceOptions): Promise<Sliced> {
  const known = checkAll("slice", SLICE, options);
  return withOpening(outside, source, known, (opening) => sliceModel(opening, known));
}

/** @param after a model, or what a tool has made and nobody has written yet */
export async function compare(
  outside: QualityOutside,
  before: ModelSource,
  after: ModelSource | NewFile,
  text: string,
  options: CompareOptions = {},
): Promise<Compared> {
  const known = checkAll("compare", COMPARE, options);
  if (typeof text !== "string") throw wrong("compare", "text", "a text", text);
  const made = isNew(after) ? await toBlob(after, known.signal) : after;
  const told = (opening: Opening) =>
    withFiles(opening, known.signal, async ({ weights }) => {
      const gguf = await isGguf(weights[0]!);
      return { size: sizeOf(weights), ids: gguf ? slicedIds(await Gguf.open(weights, known.signal)) : null };
    });
  const cut = await withOpening(outside, made, known, told);
  return withHeld(outside, before, known, async (opening, before) => {
    const { size, ids } = await told(opening);
    const files = { sizes: [size, cut.size] as const, ids: idsWithin(ids, cut.ids) };
    return compareModels(loadWith(outside), [before, made], text, { ...known, ...files });
  });
}

const isNew = (after: ModelSource | NewFile): after is NewFile =>
  typeof (after as NewFile).stream === "function" && !(after instanceof Blob);

export async function calibrate(
  outside: QualityOutside,
  source: ModelSource,
  options: CalibrateOptions,
): Promise<Calibrated> {
  const { memo, ...rest } = options;
  checkAll("calibrate", CALIBRATE, rest);
  const traced = async <T>(source: ModelSource, settings: LoadOptions, work: (tracing: Tracing) => Promise<T>) => {
    const engine = new UnstableEngine(outside);
    try {
      const model = await loadInto(engine, outside, source, settings);
      // Of one token: it tells the names of the operations.
      const { operations } = await engine.measure({ past: [], prompts: [[0]], decode: 1, profile: false });
      return await work({
        operations,
        contextLength: model.info.contextLength,
        tokenize: (text, options) => model.tokenize(text, options),
        trace: async (ids) => (await engine.trace(ids, true, settings.signal)).prefill,
      });
    } finally {
      await engine.close();
    }
  };
  return withHeld(outside, source, rest, (opening, source) => {
    const contextLength = async (signal?: AbortSignal) =>
      (await inspect(outside, source, { weights: false, signal })).config.contextLength;
    return calibrateModel({ source, opening, contextLength, load: loadWith(outside), traced }, options);
  });
}

export async function prune(outside: QualityOutside, source: ModelSource, options: PruneOptions): Promise<Pruned> {
  const { memo, ...rest } = options;
  checkAll("prune", PRUNE, rest);
  return withHeld(outside, source, rest, (opening) => pruneModel(loadWith(outside), opening, options));
}
