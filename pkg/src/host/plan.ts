/** A plan of a load: what each tensor becomes, and the memory that all of them take. */

import type { LoadSettings } from "../rpc/protocol.ts";
import type { MemoryNeeds } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import { fit, room, type Verdict } from "./fit.ts";
import type { Headers } from "./headers.ts";
import { mostTokens } from "./prefill.ts";
import { forPlan } from "./runtime.ts";

/** Holds a plan, and takes the weights that it asks for. */
export type Loader = Glue["Loader"]["prototype"];

export interface Planned {
  /** For the settings that were asked for. The caller frees it. */
  loader: Loader;
  verdict: Verdict;
  /** The tensor that comes too late in its file for a prompt to be computed while the weights come. */
  late: string | null;
}

/**
 * Plans a load and says whether it fits. There is one plan: the loader that is returned is fed where its instance runs the model, and
 * it also tells what other settings for the context and the cache would take.
 *
 * @param free bytes that the runtime has; null where that does not count
 */
export function planLoad(
  glue: Glue,
  { checkpoint, length }: Headers,
  asked: LoadSettings,
  free: number | null,
): Planned {
  const settings = forPlan(asked);
  const loader = new glue.Loader(checkpoint, settings);
  const late = asked.prefill === undefined ? undefined : loader.expectPrefill(mostTokens(asked.prefill));
  const verdict = fit({
    settings,
    needed: loader.memory() as MemoryNeeds,
    room: room(length, free, asked.maxAdapterBytes),
    trainedContext: () => loader.trainedContext(),
    needs: (other) => loader.memoryWith(other) as MemoryNeeds,
  });
  return { loader, verdict, late: late ?? null };
}
