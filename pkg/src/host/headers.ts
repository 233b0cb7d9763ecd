/** A model's headers. They are read once and parsed in every instance that needs them. */

import { mapConcurrent } from "../source/concurrent.ts";
import type { ModelFiles } from "../source/files.ts";
import type { Source } from "../source/source.ts";
import { EngineError, type ErrorCode } from "../types/errors.ts";
import type { Glue } from "../wasm/load.ts";

type Checkpoint = Glue["Checkpoint"]["prototype"];

export interface Headers {
  checkpoint: Checkpoint;
  metadata: Record<string, unknown> | undefined;
  /** The bytes that the metadata's arrays refer to: the first file's, up to the end of its header. */
  prefix: Uint8Array;
  /** Bytes of the headers of all files. */
  length: number;
  /** Parses the same headers in another instance. */
  again(glue: Glue): Promise<Checkpoint>;
}

/** Bytes of the first read: most headers are shorter. */
const FIRST = 256 << 10;

/** Reads the headers of all files at once: none depends on another. */
export async function readHeaders(
  glue: Pick<Glue, "Checkpoint">,
  files: ModelFiles,
  signal: AbortSignal,
  most = Infinity,
): Promise<Headers> {
  const { weights, promised, config } = files;
  const complete = async (checkpoint: Checkpoint) => {
    for (const [file, names] of promised?.entries() ?? []) {
      await named(weights[file]!, async () => checkpoint.checkIndex(file, names));
    }
    if (config) checkpoint.setConfig(config);
    return checkpoint;
  };
  const checkpoint = new glue.Checkpoint();
  const prefixes = await mapConcurrent([...weights.entries()], ([file, source]) =>
    named(source, () => readHeader(checkpoint, file, source, signal, most)),
  );
  await complete(checkpoint);
  return {
    checkpoint,
    prefix: prefixes[checkpoint.first()]!,
    metadata: checkpoint.metadata() as Record<string, unknown> | undefined,
    length: prefixes.reduce((sum, prefix) => sum + prefix.length, 0),
    async again(other) {
      const copy = new other.Checkpoint();
      for (const [file, source] of weights.entries()) copy.parse(file, source.size, prefixes[file]!);
      return complete(copy);
    },
  };
}

/** The length of a header is not known before it is read: the prefix doubles until the parser has enough. */
async function readHeader(
  checkpoint: Checkpoint,
  file: number,
  source: Source,
  signal: AbortSignal,
  most: number,
): Promise<Uint8Array> {
  let prefix = new Uint8Array(0);
  let length = FIRST;
  for (;;) {
    length = Math.min(length, source.size);
    const more = await source.read(prefix.length, length - prefix.length, { signal });
    const longer = new Uint8Array(length);
    longer.set(prefix);
    longer.set(more, prefix.length);
    prefix = longer;
    const needed = checkpoint.parse(file, source.size, prefix);
    if (needed === 0) return prefix;
    if (needed > most) {
      const detail = { file: source.name, expected: `at most ${most} bytes`, found: String(needed) };
      throw new EngineError("BadHeader", `${source.name}: the header is too long`, detail);
    }
    length = Math.max(needed, Math.min(2 * length, most));
  }
}

/** Adds the file's name to errors of the core, which knows tensors and offsets but no names. */
export async function named<T>(source: Source, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { code, message, detail } = error as { code?: unknown; message?: string; detail?: { file?: string } };
    if (error instanceof Error || typeof code !== "string" || detail?.file) throw error;
    throw new EngineError(code as ErrorCode, `${source.name}: ${message}`, { file: source.name, ...detail });
  }
}
