/** A load inside the worker: headers, a plan, an instance with memory for it, chunks, an engine. */

import { maxAdapterBytes as reserved } from "../options/routes.ts";
import type { LoadSettings } from "../rpc/protocol.ts";
import type { ModelFiles } from "../source/files.ts";
import type { SourceSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, MemoryNeeds, ModelInfo } from "../types/index.ts";
import type { Glue, Instance } from "../wasm/load.ts";
import type { Pick } from "../wasm/pick.ts";
import type { LoadContext, Loaded } from "./context.ts";
import { feed } from "./feed.ts";
import { type Headers, readHeaders } from "./headers.ts";
import { openingOf, retryFresh, withFiles } from "./opening.ts";
import { type Loader, planLoad } from "./plan.ts";
import { choose, forPlan, Runtime } from "./runtime.ts";
import { loadText } from "./text.ts";

export async function loadModel(source: SourceSpec, settings: LoadSettings, context: LoadContext): Promise<Loaded> {
  const choice = choose(settings, context.platform);
  const begun = performance.now();
  const runtime = await Runtime.start(choice, context);
  context.timeline?.add("load", "compile", begun, { flavour: choice.flavour });
  const warnings: string[] = [];
  const open = (fresh: boolean) => {
    warnings.length = 0;
    return openingOf(settings, context, (message) => warnings.push(message), fresh);
  };
  const job: LoadJob = { runtime, choice, settings, context, warnings };
  const work = async (files: ModelFiles): Promise<Loaded> => {
    try {
      return await loadFiles(files, job);
    } catch (error) {
      runtime.end();
      throw error;
    }
  };
  return retryFresh(open, (opening) => withFiles(source, opening, context, work));
}

interface LoadJob {
  runtime: Runtime;
  choice: Pick;
  settings: LoadSettings;
  context: LoadContext;
  /** Warnings of the files' opening. */
  warnings: readonly string[];
}

async function loadFiles(files: ModelFiles, job: LoadJob): Promise<Loaded> {
  const { runtime, choice, settings, context } = job;
  const { signal, timeline } = context;
  // Where a memory has its limit from the beginning, what is reserved for adapters is address space alone.
  const { maxAdapterBytes = reserved, chatTemplate } = settings;
  let begun = performance.now();
  const phase = (name: string, facts?: object) => {
    timeline?.add("load", name, begun, facts);
    begun = performance.now();
  };
  const headers = await readHeaders(runtime.planner().glue, files, signal);
  phase("header", { bytes: headers.length });
  const { loader: planned, needed } = planOrThrow(runtime.planner().glue, headers, settings);
  // The tokenizer is built while the weights come.
  const text = loadText(headers.metadata, headers.prefix, files, chatTemplate);
  const reading = performance.now();
  text.then(
    () => timeline?.add("tokenizer", "tokenizer", reading),
    () => {},
  );

  const instance = runtime.instance(needed.total + maxAdapterBytes, headers.length);
  const own = instance === runtime.planner() ? planned : await moveTo(instance, headers, planned);
  begun = performance.now();
  if (choice.threads > 1) await instance.glue.initThreadPool?.(choice.threads - 1);
  phase("threads", { threads: choice.threads });
  const intake = { instance, headers, files, settings: forPlan(settings), loader: own, threads: choice.threads };
  const loader = await feed(intake, context);
  for (const file of files.weights) await file.check?.({ signal });
  signal.throwIfAborted();
  begun = performance.now();
  const engine = loader.finish();
  const description = engine.describe() as Description;
  phase("engine", { bytes: needed.total });
  const loaded = await text;
  const info = infoOf(engine, instance, { ...description, ...loaded.describe() }, job);
  info.warnings.push(...loaded.warnings, ...job.warnings);
  context.onProgress({ phase: "ready", loaded: needed.weights, total: needed.weights, bytesPerSecond: 0 });
  return { engine, text: loaded, info, memory: instance.memory, glue: instance.glue, maxAdapterBytes };
}

function planOrThrow(glue: Glue, headers: Headers, settings: LoadSettings): { loader: Loader; needed: MemoryNeeds } {
  const { loader, verdict } = planLoad(glue, headers, settings, null);
  const { needed, available, suggestion, reason } = verdict;
  if (verdict.ok) return { loader, needed };
  loader.free();
  throw new EngineError("OutOfMemory", reason!, { needed: needed.total, available, suggestion });
}

/**
 * Parses the headers once more in the instance that has memory for the model. A shared memory must have its maximum when it is made, so
 * that a plan in another instance has to count it first; a plan's objects lie in the memory of their instance and cannot be moved. A build
 * with threads therefore plans exactly twice, any other once.
 */
async function moveTo({ glue }: Instance, headers: Headers, planned: Loader): Promise<undefined> {
  planned.free();
  headers.checkpoint.free();
  headers.checkpoint = await headers.again(glue);
}

function infoOf(
  engine: Loaded["engine"],
  { glue, memory }: Instance,
  description: Description,
  { choice, settings }: LoadJob,
): ModelInfo & { warnings: string[] } {
  const { dotProduct = "auto", weightPrefetch = "auto" } = settings;
  // What prefetching gains depends on the dot product, so that is chosen first.
  const dots = glue.dotProduct(dotProduct) as ModelInfo["dotProduct"];
  const prefetched = engine.tune(weightPrefetch);
  return {
    ...description,
    warnings: [...description.warnings],
    vocab: description.config.vocab,
    contextLength: engine.contextLength,
    maxSequences: settings.maxSequences ?? MAX_SEQUENCES,
    kvCacheType: engine.kvCacheType as ModelInfo["kvCacheType"],
    flavour: choice.flavour,
    dotProduct: dots,
    weightPrefetch: prefetchOf(prefetched),
    threads: choice.threads,
    threadsReason: choice.threadsReason,
    memoryBytes: memory.buffer.byteLength,
  };
}

/** As in the option table. */
const MAX_SEQUENCES = 8;

/** For each kind of codes its bits, and 1 where it is prefetched. */
function prefetchOf(choices: Uint8Array): ModelInfo["weightPrefetch"] {
  const found: Record<string, "on" | "off"> = {};
  for (let i = 0; i < choices.length; i += 2) found[`${choices[i]}-bit`] = choices[i + 1] ? "on" : "off";
  return found;
}
