/** A plan of a load: what each tensor becomes, and the memory that all of them take. */

import type { EngineSettings, LoadSettings } from "../rpc/protocol.ts";
import type { Part } from "../split/plan.ts";
import type { Description, MemoryNeeds } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import { type FitQuestion, fit, instanceBytes, room, type Verdict } from "./fit.ts";
import type { Headers } from "./headers.ts";
import type { Platform } from "./platform.ts";
import { mostTokens } from "./prefill.ts";
import { forPlan } from "./runtime.ts";

/** Holds a plan, and takes the weights that it asks for. */
export type Loader = Glue["Loader"]["prototype"];

export interface Limits {
  /** Bytes that the runtime has; null where that does not count. */
  free: number | null;
  /** Bytes that the model may take. @default what there is */
  memory?: number | undefined;
  /** Splits a model that does not fit into one WebAssembly memory. */
  split?: Platform["split"] | undefined;
}

export interface Planned {
  /** For the settings that were asked for. The caller frees it. */
  loader: Loader;
  verdict: Verdict;
  /** The tensor that comes too late in its file for a prompt to be computed while the weights come. */
  late: string | null;
  /** What each memory has of the model. */
  parts: readonly Part[];
}

/**
 * Plans a load and says whether it fits. There is one plan: the loader that is returned is fed where its instance runs the model, and
 * it also tells what other settings for the context and the cache would take.
 */
export async function planLoad(
  glue: Glue,
  { checkpoint, length }: Headers,
  asked: LoadSettings,
  { free, memory = Infinity, split }: Limits,
): Promise<Planned> {
  const settings = forPlan(asked);
  const loader = new glue.Loader(checkpoint, settings);
  const late = asked.prefill === undefined ? undefined : loader.expectPrefill(mostTokens(asked.prefill));
  const needed = loader.memory() as MemoryNeeds;
  const one = room(length, free, asked.maxAdapterBytes, asked.maxPartBytes);
  const question: FitQuestion = {
    settings,
    needed,
    room: memory < one.available ? { available: memory, reason: `and may have ${memory}` } : one,
    trainedContext: () => loader.trainedContext(),
    needs: (other) => loader.memoryWith(other) as MemoryNeeds,
  };
  const verdict = fit(question);
  const whole = { loader, verdict, late: late ?? null, parts: [{ needed }] };
  if (verdict.ok || !split || needed.total <= one.available) return whole;
  const { widen } = await split();
  const several = {
    layers: (loader.describe() as Description).config.layers,
    each: room(length, null, asked.maxAdapterBytes, asked.maxPartBytes).available,
    free: Math.min(
      memory,
      free === null ? Infinity : Math.max(0, free - instanceBytes(asked.maxAdapterBytes ?? 0, length)),
    ),
    needs: (other: EngineSettings, layers: Part["layers"]) => loader.memoryWith(ofLayers(other, layers)) as MemoryNeeds,
  };
  return { ...whole, ...widen(question, verdict, fit, several) };
}

/** The settings of a part that has these layers. */
export const ofLayers = (settings: EngineSettings, layers: Part["layers"]): EngineSettings =>
  layers ? { ...settings, ...{ firstLayer: layers[0], endLayer: layers[1] } } : settings;
