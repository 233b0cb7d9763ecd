/** How large files may be. Each limit is looked at while bytes arrive, and counts them after decoding. */

import { EngineError } from "../types/errors.ts";

export interface FileLimits {
  /** Of the whole file, of which parts are read. */
  size: number;
  /** Of a file that can only be had whole, and is held in memory. */
  whole: number;
}

const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Of a header, as the engine has it (`src/formats/limits.rs`). */
export const HEADER_BYTES = 100 * MIB;
/** Of the alignment of a GGUF's tensors, as the engine has it. */
export const ALIGNMENT_BYTES = MIB;

const inOne = (bytes: number): FileLimits => ({ size: bytes, whole: bytes });

/** A kind of file each, about four times as long as the longest that are published. */
export const FILE_LIMITS = {
  /** A model takes at most the 32 GiB of eight wasm memories; its file may hold the same weights as 32-bit floats, and many models. */
  weights: { size: 2 ** 40, whole: 4 * GIB },
  adapter: { size: 16 * GIB, whole: GIB },
  /** `config.json`, `adapter_config.json`, `generation_config.json`. */
  config: inOne(2 * MIB),
  template: inOne(4 * MIB),
  tokenizerConfig: inOne(32 * MIB),
  tokenizer: inOne(128 * MIB),
  /** `model.safetensors.index.json`: a line for each tensor. */
  index: inOne(64 * MIB),
} as const satisfies Record<string, FileLimits>;

/** How many times as long as on its way a file may be that comes compressed, and how long where its length is not announced. */
const MAX_RATIO = 32;
const MAX_DECODED = 256 * MIB;

/** The most that an encoded answer may decode to, by the length that it has on its way. */
export function decodedLimit(limit: number, encodedLength: number | null): number {
  return Math.min(limit, encodedLength === null ? MAX_DECODED : encodedLength * MAX_RATIO + MIB);
}

/** Refuses a size that no file of this kind has. */
export function checkSize(file: string, found: number, limit: number): void {
  if (found <= limit) return;
  const expected = `at most ${limit} bytes`;
  const message = `${file} is too long: expected ${expected}, found ${found}`;
  throw new EngineError("TooLarge", message, { file, expected, found: String(found) });
}
