/** The model that a command names. */

import { readFileSync } from "node:fs";
import { load } from "../node.ts";
import { engineFlags, type FlagGroup } from "../options/commands.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions, Model, ModelInfo } from "../types/index.ts";
import type { Args } from "./args.ts";
import { plural } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

/** The name of the model in the package, which lies beside `dist`. */
export const DEMO = "ternlight-demo";

/** How the demo model, which has no template, takes messages: it goes on from their texts. */
export const DEMO_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}";

export const source = (args: Args): string | URL => sourceOf(args.operands[0]!);

export function sourceOf(name: string): string | URL {
  return name === DEMO ? new URL(`../models/${DEMO}/`, import.meta.url) : name;
}

/** The options of `load`. Commands read them first, because wrong values are usage errors. */
export function loadOptions(args: Args, more: readonly FlagGroup[] = []): LoadOptions {
  const { chatTemplate, ...rest } = args.options("load", [...engineFlags, ...more]);
  const options = chatTemplate === undefined ? rest : { ...rest, chatTemplate: templateOf(chatTemplate) };
  if (!args.has("noCache")) return options;
  if (args.has("cache")) throw new UsageError("give either --cache or --no-cache");
  return { ...options, cache: false };
}

/** A template begins to be one with a brace; what has none is a file, or the file's own template. */
function templateOf(given: string): string {
  if (given.includes("{") || given === "embedded") return given;
  try {
    return readFileSync(given, "utf8");
  } catch (cause) {
    const [option, file] = ["--chat-template", given];
    throw new EngineError("NotFound", `${option}: ${(cause as Error).message}`, { option, file }, { cause });
  }
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
    const { threads, threadsReason } = model.info;
    if (options.threads && options.threads !== threads) {
      await terminal.note(`${plural(threads, "thread")}: ${threadsReason}`);
    }
    await work(model);
  } finally {
    await model.close();
  }
}

/** Leaves out the list of tensors, which the command `inspect` prints. */
export function withoutTensors({ tensors, ...info }: ModelInfo): Omit<ModelInfo, "tensors"> {
  return info;
}
