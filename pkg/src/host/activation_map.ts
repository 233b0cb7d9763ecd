/** The map of activations of a load: the caller's, else that of the model's own header. */

import { ACTIVATIONS_KEY as KEY } from "../options/activation_key.ts";
import type { LoadSettings } from "../rpc/protocol.ts";
import type { Activations, Description, ModelInfo } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import type { Headers } from "./headers.ts";
import type { Platform } from "./platform.ts";
import { forPlan } from "./runtime.ts";

interface Mapped<Settings> {
  /** With the map as the engine reads it. */
  settings: Settings;
  /** What the description says of it. */
  told: Pick<ModelInfo, "activationMap"> & { activations?: string };
}

export async function withActivationMap<Settings extends Pick<LoadSettings, "activations">>(
  settings: Settings,
  { checkpoint, metadata }: Headers,
  { Loader }: Pick<Glue, "Loader">,
  platform: Platform,
): Promise<Mapped<Settings>> {
  const { activations = "auto" } = settings;
  const own = activations === "auto" ? metadata?.[KEY] : undefined;
  if (typeof activations === "string" && own === undefined) return { settings, told: {} };
  const plain = { ...settings, activations: "auto" } as const;
  const { flatMap, readMap, resolveMap } = await platform.maps();
  const map = typeof activations === "string" ? readMap(KEY, own) : activations;
  const plan = new Loader(checkpoint, forPlan(plain));
  const model = plan.describe() as Description;
  plan.free();
  const resolved = resolveMap(map, model);
  if (resolved.size === 0) return { settings: plain, told: {} };
  const flat = flatMap(resolved, model.config.layers) as Activations;
  return { settings: { ...settings, activations: flat }, told: { activations: "by matrix", activationMap: map } };
}
