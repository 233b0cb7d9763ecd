/** A load inside the worker: headers, a plan, an instance with memory for it, chunks, an engine. */

import type { Trust } from "../cache/open.ts";
import { maxAdapterBytes as reserved } from "../options/routes.ts";
import type { LoadSettings } from "../rpc/protocol.ts";
import type { ModelFiles } from "../source/files.ts";
import type { OpenContext } from "../source/open.ts";
import type { SourceSpec } from "../source/spec.ts";
import type { Part } from "../split/plan.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, MemoryNeeds, ModelInfo } from "../types/index.ts";
import type { Glue, Instance } from "../wasm/load.ts";
import type { BuildChoice } from "../wasm/pick.ts";
import { withActivationMap } from "./activation_map.ts";
import { heldBytes, type LoadContext, type Loaded, type LoadedPart } from "./context.ts";
import { feed, type Place } from "./feed.ts";
import { type Headers, readHeaders } from "./headers.ts";
import { KERNELS_DIGEST } from "./kernels_digest.ts";
import { openingOf, retryFresh, withFiles } from "./opening.ts";
import { type Loader, planLoad } from "./plan.ts";
import type { Platform } from "./platform.ts";
import { prefault } from "./prefault.ts";
import { mostTokens, prefillIds } from "./prefill.ts";
import { choose, forPlan, Runtime } from "./runtime.ts";
import { sequences } from "./sequences.ts";
import { loadText } from "./text.ts";
import { TuningRecord } from "./tuning.ts";

export async function loadModel(source: SourceSpec, settings: LoadSettings, context: LoadContext): Promise<Loaded> {
  const choice = choose(settings, context.platform);
  const begun = performance.now();
  // The build is compiled and threads are started while the files are opened.
  const starting = Runtime.start(choice, context, choice.threads - 1);
  starting.then(
    () => context.timeline?.add("load", "compile", begun, { flavour: choice.flavour }),
    () => {},
  );
  const warnings: string[] = [];
  const open = (trust: Trust) => {
    warnings.length = 0;
    return openingOf(settings, context, (message) => warnings.push(message), trust);
  };
  const work = async (files: ModelFiles, opening: OpenContext): Promise<Loaded> => {
    const runtime = await starting;
    try {
      return await loadFiles(files, { runtime, choice, settings, context, opening, warnings });
    } catch (error) {
      runtime.end();
      throw error;
    }
  };
  try {
    return await retryFresh(open, (opening) => withFiles(source, opening, context, (files) => work(files, opening)));
  } catch (error) {
    // Also where no file could be opened.
    await starting.then(
      (runtime) => runtime.end(),
      () => {},
    );
    throw error;
  }
}

interface LoadJob {
  runtime: Runtime;
  choice: BuildChoice;
  settings: LoadSettings;
  context: LoadContext;
  opening: OpenContext;
  /** Warnings of the files' opening; complete when it is confirmed. */
  warnings: readonly string[];
}

async function loadFiles(files: ModelFiles, job: LoadJob): Promise<Loaded> {
  const { runtime, choice, context } = job;
  const { signal, timeline } = context;
  // Where a memory has its limit from the beginning, what is reserved for adapters is address space alone.
  const { maxAdapterBytes = reserved, chatTemplate } = job.settings;
  let begun = performance.now();
  const phase = (name: string, facts?: object) => {
    timeline?.add("load", name, begun, facts);
    begun = performance.now();
  };
  const { glue } = runtime.planner();
  const headers = await readHeaders(glue, files, signal);
  phase("header", { bytes: headers.length });
  const mapped = await withActivationMap(job.settings, headers, glue, context.platform);
  const plan = await planOrThrow(glue, headers, mapped.settings, context.platform);
  const { loader: planned, needed, parts, late, settings } = plan;
  const { prefill } = settings;
  const trained = planned.trainedContext();
  const places = await placesOf(runtime, parts, headers, planned, maxAdapterBytes);
  const pools = places.map(({ instance: { glue } }) => choice.threads > 1 && glue.initThreadPool?.(choice.threads - 1));
  begun = performance.now();
  // The tokenizer is built while threads join and the weights come.
  const text = loadText(headers.metadata, headers.prefix, files, context.platform, chatTemplate);
  recordTokenizer(text, timeline);

  const ids = text.then((side) => (prefill === undefined ? [] : prefillIds(prefill, side, trained)));
  ids.catch(() => {});
  // Hashes of whole files are made in their order.
  const reorders = late !== null && settings.integrity === undefined;
  const prompt = prefill === undefined ? undefined : { ids, mostTokens: mostTokens(prefill), reorders };
  const [record] = await Promise.all([openRecord(places, needed, { ...job, settings }), ...pools]);
  const { threads } = choice;
  phase("threads", { threads });
  const dots = chooseDots(places, settings, record, context.platform);
  const planSettings = forPlan(settings);
  const packing = dots.record?.found?.ternaryPacking;
  const { loaders, bytes } = await feed({ places, files, settings: planSettings, threads, packing, prompt }, context);
  for (const file of files.weights) await file.check?.({ signal });
  signal.throwIfAborted();
  begun = performance.now();
  const own = places.map(({ instance }, i) => ({ ...instance, engine: loaders[i]!.finish() })) as [LoadedPart];
  const engine = own.length > 1 ? (await context.platform.split!()).join(own) : own[0].engine;
  const description = engine.describe() as Description;
  phase("engine", { bytes: needed.total });
  const [loaded, tuned] = [await text, tune(engine, dots, settings, description.ternaryPacking)];
  // A worker that ends while it writes would leave a file without a name.
  await tuned.kept;
  phase("kernels", { measured: tuned.measured });
  await job.opening.confirm?.().then(() => phase("server"));
  // Of one engine, with the layouts that its weights have got.
  const memory = own.length > 1 ? needed : description.memory;
  const about = { ...description, memory, ...loaded.describe(), ...tuned.chosen, ...mapped.told };
  const info = infoOf(engine, own, about, { ...job, settings });
  info.warnings.push(...loaded.warningsFor(info.vocab), ...job.warnings, ...plan.warnings);
  if (prompt) info.prefill = goOn(engine, await ids, reorders ? null : late, info.warnings);
  if (settings.prefault) for (const { memory } of own) prefault(memory);
  context.onProgress({ phase: "ready", loaded: bytes, total: bytes, bytesPerSecond: 0 });
  return { engine, text: loaded, info, settings: planSettings, parts: own, maxAdapterBytes };
}

function recordTokenizer(text: Promise<unknown>, timeline: LoadContext["timeline"]): void {
  const begun = performance.now();
  text.then(
    () => timeline?.add("tokenizer", "tokenizer", begun),
    () => {},
  );
}

/** Has the engine compute what is left of a prompt, and says how far it came during the load. */
function goOn(
  engine: Loaded["engine"],
  ids: readonly number[],
  late: string | null,
  warnings: string[],
): ModelInfo["prefill"] {
  // It may begin here: a tokenizer can take longer than the weights.
  const layers = engine.prefill(Uint32Array.from(ids));
  if (late) warnings.push(`prefill: most layers had to wait for ${late}, which comes late in its file`);
  return { tokens: ids.length, layers, late };
}

interface FittingPlan {
  loader: Loader;
  needed: MemoryNeeds;
  parts: readonly Part[];
  late: string | null;
  /** Those that were asked for, or the nearest ones that fit. */
  settings: LoadSettings;
  warnings: string[];
}

async function planOrThrow(
  glue: Glue,
  headers: Headers,
  settings: LoadSettings,
  platform: Platform,
): Promise<FittingPlan> {
  const auto = settings.fit === "auto";
  const free = auto ? platform.freeMemory() : null;
  const { loader, verdict, late, parts } = await planLoad(glue, headers, settings, { free, split: platform.split });
  const { needed, available, suggestion, reason } = verdict;
  if (verdict.ok)
    return {
      loader,
      needed,
      parts,
      late,
      ...(parts.length > 1 ? splitSettings(settings) : { settings, warnings: [] }),
    };
  loader.free();
  if (auto && suggestion) {
    const plan = await planOrThrow(glue, headers, { ...settings, ...suggestion, fit: "none" }, platform);
    const taken = Object.entries(suggestion).map(([name, value]) => `${name} ${value}`);
    return { ...plan, warnings: [`fit: ${taken.join(", ")} was taken, because ${reason}`] };
  }
  throw new EngineError("OutOfMemory", reason!, { needed: needed.total, available, suggestion });
}

/** What of some settings a model can have that is split over several memories. */
function splitSettings({ prefill, ...settings }: LoadSettings): Pick<FittingPlan, "settings" | "warnings"> {
  const split = "a model that is split over several memories";
  if (settings.health)
    throw new EngineError("UnsupportedOption", `health: ${split} is not watched`, { option: "health" });
  return {
    settings,
    warnings: prefill === undefined ? [] : [`prefill: ${split} computes its prompts behind the load`],
  };
}

/**
 * Instances for the parts of a model, with the headers parsed once more in each but the one that has planned. A shared memory must have its
 * maximum when it is made, so that a plan in another instance has to count it first; a plan's objects lie in the memory of their instance
 * and cannot be moved. A build with threads therefore plans a whole model exactly twice, any other once.
 */
async function placesOf(
  runtime: Runtime,
  parts: readonly Part[],
  headers: Headers,
  planned: Loader,
  maxAdapterBytes: number,
): Promise<Place[]> {
  const instances = parts.map(({ needed }, i) => runtime.instance(needed.total + maxAdapterBytes, headers.length, i));
  const stays = instances[0] === runtime.planner();
  const loader = stays && parts.length === 1 ? planned : undefined;
  if (!loader) planned.free();
  if (!stays) headers.checkpoint.free();
  const place = async (instance: Instance, i: number): Promise<Place> => {
    const checkpoint = stays && i === 0 ? headers.checkpoint : await headers.again(instance.glue);
    return { instance, checkpoint, layers: parts[i]!.layers, loader };
  };
  return Promise.all(instances.map(place));
}

function infoOf(
  engine: Loaded["engine"],
  parts: readonly Instance[],
  description: Description & Kernels,
  { choice, settings }: LoadJob,
): ModelInfo & { warnings: string[] } {
  return {
    ...description,
    warnings: [...description.warnings],
    vocab: description.config.vocab,
    contextLength: engine.contextLength,
    maxSequences: sequences(engine, settings.maxSequences),
    kvCacheType: engine.kvCacheType as ModelInfo["kvCacheType"],
    flavour: choice.flavour,
    threads: choice.threads,
    threadsReason: choice.threadsReason,
    ...(parts.length > 1 && { parts: parts.length }),
    memoryBytes: heldBytes(parts),
  };
}

type Kernels = Pick<ModelInfo, "dotProduct" | "weightPrefetch">;

/** How products are summed. */
interface Dots {
  dotProduct: ModelInfo["dotProduct"];
  /** What earlier loads have measured, and where this one's is kept; null also where kernels are asked for. */
  record: TuningRecord | null;
  /** How long choosing took. */
  ms: number;
}

/** What earlier loads of this build have measured for models of this size. Where they have not, dot products are warmed up. */
async function openRecord(
  places: readonly Place[],
  { weights }: MemoryNeeds,
  { choice: { flavour, threads }, settings, context: { platform } }: LoadJob,
): Promise<TuningRecord | null> {
  // What is fastest differs with how much of the weights caches hold.
  const size = Math.floor(Math.log2(weights));
  const record = await TuningRecord.open(settings, [KERNELS_DIGEST, flavour, threads, size], platform);
  // While threads join, compilers optimise what is measured then: unoptimised code tells no two dot products apart.
  chooseDots(places, settings, record, platform);
  return record;
}

/**
 * Takes what is asked for, else what was measured on this machine before, else measures. It comes before any weight, because packing and
 * prefetching depend on it. Where the engine was given compiled, on edge workers, clocks stand still: there the expected one is taken.
 */
function chooseDots(
  places: readonly Place[],
  { dotProduct = "auto", weightPrefetch = "auto" }: LoadSettings,
  opened: TuningRecord | null,
  { given }: Platform,
): Dots {
  const record = dotProduct === "auto" && weightPrefetch === "auto" ? opened : null;
  const begun = performance.now();
  const asked = dotProduct === "auto" && given ? "expected" : dotProduct;
  let dots: string = record?.found?.dotProduct ?? asked;
  for (const { instance } of places) dots = instance.glue.dotProduct(dots);
  return { dotProduct: dots as ModelInfo["dotProduct"], record, ms: performance.now() - begun };
}

/** Chooses in the same way which weights are touched ahead, and keeps that and how ternary weights were packed. */
function tune(
  engine: Loaded["engine"],
  { dotProduct, record, ms }: Dots,
  { weightPrefetch = "auto", ternaryPacking: asked }: LoadSettings,
  packed: Description["ternaryPacking"],
): { chosen: Kernels; measured: boolean; kept: Promise<void> | undefined } {
  const recalled = record?.found && engine.recall(record.found.weightPrefetch);
  const prefetched = recalled ?? engine.tune(weightPrefetch, ms);
  const ternaryPacking = asked === "auto" ? packed : undefined;
  const known = recalled && (!ternaryPacking || ternaryPacking === record?.found?.ternaryPacking);
  // What a second load has no time to decide either is kept as it is: some clocks are too coarse.
  const decided = record?.found ? prefetched.map((number, i) => (i % 2 ? number % 3 : number)) : prefetched;
  const kept = known ? undefined : record?.keep({ dotProduct, weightPrefetch: decided, ternaryPacking });
  return { chosen: { dotProduct, weightPrefetch: prefetchOf(prefetched) }, measured: !recalled, kept };
}

/** Kinds of weights and what is touched ahead of their use, in the engine's order. */
const KINDS = "1-bit,2-bit,4-bit,6-bit,8-bit,2-bit K,4-bit K,6-bit K,f32,f16,bf16".split(",");
const AHEAD = ["off", "near", "pages"] as const;

/** The choices of `Engine.tune` by their names, decided or not. */
function prefetchOf(choices: Uint8Array): ModelInfo["weightPrefetch"] {
  const found: Record<string, (typeof AHEAD)[number]> = {};
  for (let i = 0; i < choices.length; i += 2) found[KINDS[choices[i]!]!] = AHEAD[choices[i + 1]! % 3]!;
  return found;
}
