/** A plan of a load: what each tensor becomes, and the memory that all of them take. */

import type { LoadSettings } from "../rpc/protocol.ts";
import type { CanRun, Description, MemoryNeeds } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import { fit, room } from "./fit.ts";
import type { Headers } from "./headers.ts";
import { forPlan } from "./runtime.ts";

/** Holds a plan, and takes the weights that it asks for. */
export type Loader = Glue["Loader"]["prototype"];

export interface Planned {
  /** For the settings that were asked for. The caller frees it. */
  loader: Loader;
  verdict: CanRun;
}

/**
 * Plans a load and says whether it fits. A plan copies the descriptions of all tensors, so the one for the given settings is kept for
 * the load; other settings are tried only where it does not fit.
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
  const verdict = fit({
    settings,
    needed: loader.memory() as MemoryNeeds,
    room: room(length, free, asked.maxAdapterBytes),
    trainedContext: () => (loader.describe() as Description).config.contextLength,
    needs(other) {
      const trial = new glue.Loader(checkpoint, other);
      const memory = trial.memory() as MemoryNeeds;
      trial.free();
      return memory;
    },
  });
  return { loader, verdict };
}
