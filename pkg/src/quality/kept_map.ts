/** Maps of activations where a model has lost layers: keys name layers by number, and those that stay have new ones. */

import { ACTIVATIONS_KEY } from "../options/activation_key.ts";
import { readMap } from "../options/activation_map.ts";
import type { ActivationMap, LoadOptions, MappedPrecision } from "../types/index.ts";
import type { Gguf } from "./gguf.ts";

/** A key of one layer or of some; `blk.*` has no numbers. */
const NUMBERED = /^blk\.(\d{1,5})(?:-(\d{1,5}))?(?:\.([\w*]+?))?(?:\.weight)?$/;

/** The first key of a load's own map that names layers by number, if there is one. */
export const numberedKey = ({ activations }: LoadOptions = {}): string | undefined =>
  typeof activations === "object" ? Object.keys(activations).find((key) => NUMBERED.test(key)) : undefined;

/** The map of a model's header for some of its layers; null of a model without one, or where no key is left. */
export function keptMap(gguf: Gguf, layers: readonly number[]): ActivationMap | null {
  if (gguf.metadata[ACTIVATIONS_KEY] === undefined) return null;
  const map = renumbered(readMap(ACTIVATIONS_KEY, gguf.metadata[ACTIVATIONS_KEY]), layers);
  return Object.keys(map).length > 0 ? map : null;
}

/** The keys with the new numbers. What was said of a single layer goes before what is left of a range. */
export function renumbered(map: ActivationMap, layers: readonly number[]): ActivationMap {
  const found = new Map<string, MappedPrecision>();
  const single = new Map<string, MappedPrecision>();
  for (const [key, precision] of Object.entries(map)) {
    const [, first, last = first, matrix = "*"] = NUMBERED.exec(key) ?? [];
    if (first === undefined) {
      found.set(key, precision);
      continue;
    }
    const [from, to] = [Number(first), Number(last)];
    const places = layers.flatMap((layer, at) => (layer >= from && layer <= to ? [at] : []));
    if (places.length === 0) continue;
    // Layers keep their order, so that those of a range still follow each other.
    const which = places.length > 1 ? `${places[0]}-${places.at(-1)}` : places[0];
    (from === to ? single : found).set(`blk.${which}${matrix === "*" ? "" : `.${matrix}`}`, precision);
  }
  return Object.fromEntries([...found, ...single]);
}
