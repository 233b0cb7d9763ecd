/** Adapters that flags name. */

import type { AdapterUse, LoadOptions, Model } from "../types/index.ts";
import type { Args } from "./args.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

/** Loads the adapters that the flags name; a scale follows the last equals sign. */
export async function loadAdapters(
  args: Args,
  { cache, verify, connections }: LoadOptions,
  model: Model,
  { signal }: Terminal,
): Promise<{ adapters?: AdapterUse[] }> {
  const adapters: AdapterUse[] = [];
  for (const [index, given] of scaled(args).entries()) {
    const name = String(index + 1);
    await model.loadAdapter(given.file, { name, cache, verify, connections, signal });
    adapters.push({ name, scale: given.scale });
  }
  return adapters.length > 0 ? { adapters } : {};
}

/** Files and scales, read before anything is loaded, because a wrong scale is a usage error. */
export function scaled(args: Args): { file: string; scale: number }[] {
  return args.texts("adapter").map((text) => {
    const [, file, digits] = /^(.+)=([^=/\\]*)$/s.exec(text) ?? [];
    if (file === undefined) return { file: text, scale: 1 };
    const scale = digits === "" ? Number.NaN : Number(digits);
    if (Math.abs(scale) <= 1000) return { file, scale };
    const [option, expected] = ["--adapter", "a number from -1000 to 1000 behind ="];
    throw new UsageError(`--adapter must have ${expected}, not ${digits}`, { option, expected, found: digits! });
  });
}
