/** The model that a command names. */

import { load } from "../node.ts";
import { engineFlags, type FlagGroup } from "../options/commands.ts";
import type { LoadOptions, Model, ModelInfo } from "../types/index.ts";
import type { Args } from "./args.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

/** The name of the model in the package, which lies beside `dist`. */
const DEMO = "ternlight-demo";

export const source = (args: Args): string | URL => sourceOf(args.operands[0]!);

export function sourceOf(name: string): string | URL {
  return name === DEMO ? new URL(`../models/${DEMO}/`, import.meta.url) : name;
}

/** The options of `load`. Commands read them first, because wrong values are usage errors. */
export function loadOptions(args: Args, more: readonly FlagGroup[] = []): LoadOptions {
  const options = args.options("load", [...engineFlags, ...more]);
  if (!args.has("noCache")) return options;
  if (args.has("cache")) throw new UsageError("give either --cache or --no-cache");
  return { ...options, cache: false };
}

/** Loads the model, works with it and closes it. */
export async function withModel(
  args: Args,
  terminal: Terminal,
  options: LoadOptions,
  work: (model: Model) => Promise<void>,
): Promise<void> {
  const { signal, progress: onProgress } = terminal;
  const model = await load(source(args), { ...options, signal, onProgress });
  try {
    await terminal.warn(model.info.warnings);
    await work(model);
  } finally {
    await model.close();
  }
}

/** Leaves out the list of tensors, which the command `inspect` prints. */
export function withoutTensors({ tensors, ...info }: ModelInfo): Omit<ModelInfo, "tensors"> {
  return info;
}
