/** What the commands share that write a new model. */

import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { convert } from "../convert/convert.ts";
import { checkTarget, writeAt, writeWhole } from "../convert/write.ts";
import { Meter } from "../host/meter.ts";
import { fetchFile, findOnHub, paths, toPath } from "../platform/node.ts";
import type { NewFile } from "../quality/types.ts";
import { openFiles } from "../source/files.ts";
import { onlyModel, partsOf } from "../source/shards.ts";
import { type SourceSpec, toSpec } from "../source/spec.ts";
import { withSource } from "../source/with_source.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { source, sourceOf } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

const MAGIC = "GGUF";

/** The model that a command names, as data; a name on a hub is looked up. */
export const withSpec = <T>(
  args: Args,
  signal: AbortSignal,
  work: (spec: SourceSpec, told: readonly string[]) => Promise<T>,
): Promise<T> => withSource({ base: null, toPath, onHub: findOnHub() }, source(args), { signal }, work);

/** What tells a model's files from others of the same names: how long they are, and when they were written. */
export type ModelVersion = readonly (readonly [name: string, size: number, version: string | null])[];

/** The model as a GGUF: its own file, or what `convert` makes of it, which is gone when the work is done. */
export function withGguf<T>(
  args: Args,
  terminal: Terminal,
  work: (model: string | URL, version: ModelVersion) => Promise<T>,
): Promise<T> {
  const { signal, progress: onProgress } = terminal;
  return withSpec(args, signal, async (spec, told) => {
    await terminal.warn(told);
    const { gguf, version } = await lookAt(spec, signal);
    if (gguf) return work(source(args), version);
    const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
    try {
      const out = path.join(folder, "model.gguf");
      const write = (type?: string) => convert(spec, out, { type, runtime: { fetchFile, paths }, signal, onProgress });
      const refused = (error: unknown) => error instanceof EngineError && error.detail.option === "type";
      const { warnings } = await write().catch(async (first) => {
        if (!refused(first)) throw first;
        // Rows that are no whole blocks of the default type: the reason names the ternary type that fits. Where no ternary type holds the
        // matrices, they stay as they are; what GGUF has no other type for either is refused for the first reason.
        for (const type of [...(/\bI2_S\b/.test(first.message) ? ["i2_s"] : []), "keep"]) {
          try {
            return await write(type);
          } catch (error) {
            if (!refused(error)) throw error;
          }
        }
        throw first;
      });
      await terminal.warn(warnings);
      return await work(out, version);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

/** Which model a name or an address stands for now. */
export const versionOf = (model: string, signal: AbortSignal): Promise<ModelVersion> =>
  withSource({ base: null, toPath, onHub: findOnHub() }, sourceOf(model), { signal }, async (spec) => {
    return (await lookAt(spec, signal)).version;
  });

/** Whether a model is a GGUF, and which one. */
export async function lookAt(spec: SourceSpec, signal: AbortSignal): Promise<{ gguf: boolean; version: ModelVersion }> {
  const { weights } = await openFiles(spec, { paths, signal });
  try {
    const [first] = weights;
    const magic = first!.size < MAGIC.length ? "" : latin1(await first!.read(0, MAGIC.length));
    const version = weights.map(({ name, size, version = null }) => [name, size, version] as const);
    return { gguf: magic === MAGIC, version };
  } finally {
    await Promise.all(weights.map((file) => file.close()));
  }
}

const latin1 = (bytes: Uint8Array) => new TextDecoder("latin1").decode(bytes);

/** The file that --output names, which must not be there unless --force is given. */
export async function outputOf(args: Args, force = false): Promise<string> {
  const out = args.text("output");
  if (out === undefined || out === "") throw new UsageError("--output FILE is missing", { option: "--output" });
  await checkOutput(args, out, force);
  return out;
}

/** Refuses the model's own files too: behind them, before and after would be the same. */
export async function checkOutput(args: Args, out: string, force: boolean, option = "--output"): Promise<void> {
  const spec = toSpec(source(args), { base: null, toPath });
  const own = spec.kind === "path" ? await filesOf(spec.path) : [];
  const look = (file: string) => stat(file, { bigint: true }).catch(() => null);
  const [target, ...files] = await Promise.all([out, ...own].map(look));
  if (target && files.some((file) => file?.ino === target.ino && file.dev === target.dev)) {
    throw new UsageError(`${option} ${out} is the model itself: give the new file another name`, { option });
  }
  await checkTarget(out, force);
}

/** Every part of a model that is a file or in a folder. */
async function filesOf(model: string): Promise<string[]> {
  const names = await readdir(model).catch(() => null);
  if (names) return onlyModel(model, names).map((name) => path.join(model, name));
  return partsOf(path.basename(model)).map((name) => path.join(path.dirname(model), name));
}

/** Writes a new file; it gets its name when it is whole. */
export async function writeNew(out: string, force: boolean, file: NewFile, terminal: Terminal): Promise<void> {
  const { signal, progress } = terminal;
  const meter = new Meter(file.size, progress);
  await writeWhole(out, force, file.size, async (target) => {
    let at = 0;
    for await (const bytes of file.stream({ signal })) {
      await writeAt(target, bytes, at);
      at += bytes.length;
      meter.add(bytes.length);
    }
  });
  meter.end("ready");
}

/** The same of a text. */
export async function writeNewText(out: string, force: boolean, text: string): Promise<void> {
  const bytes = new TextEncoder().encode(text);
  await writeWhole(out, force, bytes.length, (target) => writeAt(target, bytes, 0));
}
