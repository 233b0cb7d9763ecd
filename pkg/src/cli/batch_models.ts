/** What commands of batches share: models, files and templates. */

import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { type Answerer, openAnswerer } from "../batch/answerer.ts";
import { nameOf } from "../batch/disk.ts";
import { filesOf, type Places } from "../batch/output.ts";
import { Template } from "../batch/template.ts";
import { load } from "../node.ts";
import { recommend } from "../node-doctor.ts";
import { hyphenated } from "../options/commands.ts";
import { batchFlags } from "../options/table/batch.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";
import { type Args, STANDARD } from "./args.ts";
import { DEMO, DEMO_TEMPLATE, loadOptions, sourceOf } from "./model.ts";
import { named } from "./served.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import { version } from "./version.ts";

/** Lines that one engine computes together unless it is told otherwise. */
const MAX_SEQUENCES = 32;
/** Room for the answers of lines that ask for several. */
const WAITING = 4096;

export interface BatchFlags {
  batchModel?: string;
  out?: string;
  errors?: string;
  workers?: number;
  chunk?: number;
  resume?: boolean;
  force?: boolean;
  template?: string;
  defaultMaxTokens?: number;
}

export async function placesOf({ out, errors, batchModel }: BatchFlags, input: string): Promise<Places> {
  if (batchModel === undefined) throw new UsageError("--model is missing", { option: "--model" });
  if (out === undefined) throw new UsageError("--out is missing", { option: "--out" });
  if (out === STANDARD || errors === STANDARD) {
    throw new UsageError("--out and --errors are files: what is not whole has no name", { option: "--out" });
  }
  const places = { out, errors: errors ?? out.replace(/(\.jsonl)?$/, ".errors.jsonl"), always: errors !== undefined };
  const files = await Promise.all(filesOf(places).map(nameOf));
  const twice = files.find((file, i) => files.indexOf(file) < i);
  if (twice) throw new UsageError(`--out and --errors would both be written to ${twice}`, { option: "--errors" });
  if (input !== STANDARD && files.includes(await nameOf(input))) {
    throw new UsageError("the input would be replaced by the output", { option: "--out" });
  }
  return places;
}

export const templateOf = (given: string | undefined): Template | null =>
  given === undefined ? null : new Template(templateText(given));

/** What has a brace in it is a template; a file's name has none. */
function templateText(given: string): string {
  if (given.includes("{")) return given;
  try {
    return readFileSync(given, "utf8").replace(/\r?\n$/, "");
  } catch (cause) {
    const [option, file] = ["--template", given];
    throw new EngineError("NotFound", `${option}: ${(cause as Error).message}`, { option, file }, { cause });
  }
}

/** The options of each worker's model: cores are shared, and a whole chunk is computed together. */
export function batchLoad(args: Args, { workers = 1, chunk = MAX_SEQUENCES }: BatchFlags = {}): LoadOptions {
  for (const option of args.has("recommend") ? (["maxSequences", "workers"] as const) : []) {
    const flag = `--${hyphenated(option)}`;
    if (args.has(option)) throw new UsageError(`${flag} does not go with --recommend`, { option: flag });
  }
  const given = loadOptions(args, ["serving", "loading"]);
  const threads = Math.max(1, Math.floor(availableParallelism() / workers));
  return {
    maxSequences: Math.min(chunk, MAX_SEQUENCES),
    maxWaiting: WAITING,
    ...(workers > 1 ? { threads } : {}),
    ...given,
  };
}

/** With --recommend as many lines at once as a probe finds fastest. What a line's answer is does not depend on it. */
export async function tuned(
  args: Args,
  model: string,
  settings: LoadOptions,
  answerTokens: number = batchFlags.defaultMaxTokens.default,
  terminal: Terminal,
): Promise<LoadOptions> {
  if (!args.has("recommend")) return settings;
  terminal.passing("measuring");
  const users = settings.maxSequences ?? MAX_SEQUENCES;
  const found = await recommend(sourceOf(named(model).source), {
    users,
    answerTokens: Math.max(1, answerTokens),
    signal: terminal.signal,
  });
  if (!found.fits) throw new EngineError("OutOfMemory", found.missing ?? "the model does not fit", {});
  return { ...settings, maxSequences: found.settings.maxSequences! };
}

/** @param model `[NAME=]MODEL` */
export function openModel(
  model: string,
  settings: LoadOptions,
  defaultMaxTokens: number = batchFlags.defaultMaxTokens.default,
  { signal, progress: onProgress }: Terminal,
): Promise<Answerer> {
  const { name, source } = named(model);
  const options = { ...(source === DEMO ? { chatTemplate: DEMO_TEMPLATE } : {}), ...settings, signal, onProgress };
  const loader = (more: LoadOptions) => load(sourceOf(source), { ...more, ...options });
  return openAnswerer(loader, { name, defaultMaxTokens, version: version() });
}

/** Opens all or none. */
export async function openAll(opening: readonly Promise<Answerer>[]): Promise<Answerer[]> {
  const opened = await Promise.allSettled(opening);
  const answerers = opened.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const failed = opened.find((one) => one.status === "rejected");
  if (!failed) return answerers;
  await Promise.all(answerers.map((one) => one.close()));
  throw failed.reason;
}
