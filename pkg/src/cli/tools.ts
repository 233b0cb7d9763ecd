/** What the commands share that write a new model. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { convert } from "../convert/convert.ts";
import { checkTarget, writeAt, writeWhole } from "../convert/write.ts";
import { Meter } from "../host/meter.ts";
import { fetchFile, paths, toPath } from "../platform/node.ts";
import type { NewFile } from "../quality/types.ts";
import { openFiles } from "../source/files.ts";
import { toSpec } from "../source/spec.ts";
import type { Args } from "./args.ts";
import { STANDARD } from "./args.ts";
import { readText } from "./file.ts";
import { readInput } from "./input.ts";
import { source } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

const MAGIC = "GGUF";

/** The model as a GGUF: its own file, or what `convert` makes of it, which is gone when the work is done. */
export async function withGguf<T>(
  args: Args,
  terminal: Terminal,
  work: (model: string | URL) => Promise<T>,
): Promise<T> {
  const own = source(args);
  const spec = toSpec(own, { base: null, toPath });
  const { signal, progress: onProgress } = terminal;
  const files = await openFiles(spec, { paths, signal });
  const [first] = files.weights;
  const start = first!.size < MAGIC.length ? new Uint8Array() : await first!.read(0, MAGIC.length);
  await Promise.all(files.weights.map((file) => file.close()));
  if (new TextDecoder("latin1").decode(start) === MAGIC) return work(own);
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  try {
    const out = path.join(folder, "model.gguf");
    const { warnings } = await convert(spec, out, { runtime: { fetchFile, paths }, signal, onProgress });
    await terminal.warn(warnings);
    return await work(out);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The file that --output names, which must not be there unless --force is given. */
export async function outputOf(args: Args, force = false): Promise<string> {
  const out = args.text("output");
  if (out === undefined || out === "") throw new UsageError("--output FILE is missing", { option: "--output" });
  await checkTarget(out, force);
  return out;
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

export const textOf = (file: string, terminal: Terminal): Promise<string> =>
  file === STANDARD ? readInput(terminal.signal) : readText(file);
