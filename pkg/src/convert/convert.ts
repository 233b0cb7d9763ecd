/** Writes a model of any source as one GGUF file, under another name until it is complete. */

import path from "node:path";
import { createGlue } from "../../dist/glue/convert.js";
import { type Headers, readHeaders } from "../host/headers.ts";
import { Meter } from "../host/meter.ts";
import type { Platform } from "../host/platform.ts";
import { readAll, type Span, streamAll } from "../host/spans.ts";
import { type ModelFiles, NO_SIDE, openFiles } from "../source/files.ts";
import type { SourceSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { I2sInterleave, Progress } from "../types/index.ts";
import { compile } from "../wasm/load.ts";
import { type Layout, layOut, type RawPair, rawPair, rawPairs, type TensorEntry } from "./header.ts";
import type { NewFile } from "./new_file.ts";
import { textEntries } from "./text.ts";
import { checkTarget, writeAt, writeWhole } from "./write.ts";

export interface ConvertOptions {
  /** Type of the layers' matrices: tq2_0, tq1_0, q1_0, i2_s, or keep. @default the one that fits the source's codes */
  type?: string | undefined;
  /** Type of the embedding: keep, f16, q8_0, q6_k or q4_0. @default as the head */
  embedding?: string;
  /** Type of the head: keep, f16, or as the load option. @default keep */
  head?: string;
  /** How an I2_S source interleaves its codes. */
  i2s?: I2sInterleave;
  /** The runtime that converts. */
  runtime: Pick<Platform, "fetchFile" | "paths">;
  /** Whether a file of this name may be replaced. */
  force?: boolean;
  signal: AbortSignal;
  onProgress(progress: Progress): void;
}

export interface Converted {
  file: string;
  bytes: number;
  tensors: number;
  /** Type of the layers' matrices; keep where each has its own. */
  type: string;
  warnings: string[];
}

type Glue = ReturnType<typeof createGlue>;
type Converter = Glue["Converter"]["prototype"];

interface Tensor extends TensorEntry {
  reads: Span[];
}

/** `general.file_type`: programs do not need it, but show it to people. Both forks of llama.cpp use 40 for a type of their own. */
const FILE_TYPES: Record<string, number> = { TQ1_0: 36, TQ2_0: 37, Q1_0: 40, I2_S: 40 };
/** Metadata about the source's file and not about its model: it is not copied. */
const OF_THE_FILE = /^(split\.|general\.(file_type|quantization_version|alignment)$)/;

/** Bytes that are converted at a time. */
const CHUNK = 1 << 20;

export async function convert(source: SourceSpec, out: string, options: ConvertOptions): Promise<Converted> {
  const { runtime, signal, onProgress, force = false, i2s, type, embedding, head } = options;
  await checkTarget(out, force);
  onProgress({ phase: "header", loaded: 0, total: 0, bytesPerSecond: 0 });
  const glue = createGlue();
  const module = await compile(new URL("./convert.wasm", import.meta.url), runtime.fetchFile);
  const { memory } = glue.initSync({ module });
  const files = await openFiles(source, { paths: runtime.paths, signal });
  try {
    const headers = await readHeaders(glue, files, signal);
    const converter = new glue.Converter(headers.checkpoint, defined({ i2s, type, embedding, head }));
    converter.decide(await readAll(converter.probes() as Span[], files, signal));
    const tensors = converter.tensors() as Tensor[];
    const { layout, warnings } = await describe(converter, headers, files, tensors, source);
    await writeWhole(out, force, layout.size, async (file) => {
      await writeAt(file, layout.header, 0);
      await copyTensors({ converter, memory, files, tensors, layout, file, signal, onProgress });
    });
    return {
      file: out,
      bytes: layout.size,
      tensors: tensors.length,
      type: converter.kind ?? "keep",
      warnings: [...converter.warnings(), ...warnings],
    };
  } catch (error) {
    throw EngineError.revive(error);
  } finally {
    await Promise.all(files.weights.map((weights) => weights.close()));
  }
}

/** Lays out the new file's header. The vocabulary that it was made from is released before the weights are read. */
async function describe(
  converter: Converter,
  headers: Headers,
  files: ModelFiles,
  tensors: readonly Tensor[],
  source: SourceSpec,
): Promise<{ layout: Layout; warnings: string[] }> {
  const { metadata } = headers;
  const own = metadata ? rawPairs(headers.prefix) : modelPairs(converter, source);
  const mute = !metadata || metadata["tokenizer.ggml.model"] === undefined;
  const text = mute ? textEntries(await files.side(), converter.vocab) : { entries: [], warnings: [] };
  const said = new Set(text.entries.map(({ key }) => key));
  const pairs = [
    ...own.filter(({ key }) => !OF_THE_FILE.test(key) && !said.has(key)),
    ...(converter.kind ? [rawPair({ key: "general.file_type", value: FILE_TYPES[converter.kind]! })] : []),
    rawPair({ key: "general.quantization_version", value: 2 }),
    ...text.entries.map((entry) => rawPair(entry)),
  ];
  files.side = async () => NO_SIDE;
  return { layout: layOut(pairs, tensors), warnings: text.warnings };
}

function modelPairs(converter: Converter, source: SourceSpec): RawPair[] {
  const keys = converter.keys() as { key: string; value: { type: string; value: string | number } }[];
  const pairs = keys.map(({ key, value: { type, value } }) => rawPair({ key, value }, type === "f32"));
  const name = folderName(source);
  if (name && !pairs.some(({ key }) => key === "general.name"))
    pairs.push(rawPair({ key: "general.name", value: name }));
  return pairs;
}

/** The folder's name stands for the model's. */
function folderName(source: SourceSpec): string | null {
  const base = source.kind === "folder" ? source.base : source;
  const address =
    base.kind === "path" ? path.resolve(base.path) : base.kind === "url" ? new URL(base.url).pathname : "";
  const parts = address.split(/[/\\]/).filter((part) => part !== "");
  return parts.findLast((part) => !/\.(safetensors|json)$/.test(part)) ?? null;
}

interface Copying {
  converter: Converter;
  memory: WebAssembly.Memory;
  files: ModelFiles;
  tensors: readonly Tensor[];
  layout: Layout;
  file: NewFile;
  signal: AbortSignal;
  onProgress(progress: Progress): void;
}

/** Streams each tensor through the converter into its place in the new file. */
async function copyTensors(copying: Copying): Promise<void> {
  const { converter, memory, files, tensors, layout, file, signal, onProgress } = copying;
  const total = tensors.flatMap(({ reads }) => reads).reduce((sum, { length }) => sum + length, 0);
  const meter = new Meter(total, onProgress);
  for (const [index, { reads }] of tensors.entries()) {
    const write = async (writes: unknown[]) => {
      for (const [offset, bytes] of writes as [number, Uint8Array][]) {
        await writeAt(file, bytes, layout.offsets[index]! + offset);
      }
    };
    await write(converter.begin(index));
    await streamAll(reads, files, signal, {
      async piece(bytes) {
        for (let from = 0; from < bytes.length; from += CHUNK) {
          const part = bytes.subarray(from, from + CHUNK);
          const address = converter.buffer(part.length);
          new Uint8Array(memory.buffer, address, part.length).set(part);
          await write(converter.feed(part.length));
        }
        meter.add(bytes.length);
      },
    });
    await write(converter.end());
  }
  meter.end("ready");
}

const defined = (options: object) =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
