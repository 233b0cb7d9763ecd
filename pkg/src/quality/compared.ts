/** What a tool has cost and gained: a model before and after it, on a text that it has not seen. */

import { EngineError } from "../types/errors.ts";
import type { LoadOptions, Model, ModelSource } from "../types/index.ts";
import { measureQuality } from "./measure.ts";
import type { QualityRow } from "./report.ts";

export interface CompareOptions {
  /** Options of every load. */
  load?: LoadOptions | undefined;
  /** Aborts the measurement; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called as windows are done, from 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
}

export interface ComparedRow extends QualityRow {
  /** Of the text in UTF-8: comparable where the tokens are others. */
  bitsPerByte: number;
  /** Bytes of the files with its weights. */
  size: number;
}

/** Both are compared with the model before, with keys and values in f32 and everything else as stored and trained. */
export interface Compared {
  before: ComparedRow;
  after: ComparedRow;
}

type Load = (source: ModelSource, options: LoadOptions) => Promise<Model>;

/** Characters of the text that are read: some two thousand tokens. */
const MOST = 8192;

/** What of a held-out text is compared; null for a text of a few words. */
export function comparedPart(text: string): string | null {
  const part = text.slice(0, MOST);
  return part.trim().split(/\s+/).length < 3 ? null : part;
}

/** What is known of the files: their sizes, and of a slice the old id of each of its tokens. */
interface Files {
  sizes: readonly [before: number, after: number];
  ids: ArrayLike<number> | null;
}

export async function compareModels(
  load: Load,
  [before, after]: readonly [before: ModelSource, after: ModelSource],
  text: string,
  { ids, sizes, load: loading = {}, signal, onProgress = () => {} }: CompareOptions & Files,
): Promise<Compared> {
  const part = comparedPart(text);
  if (part === null) {
    const expected = "a text of some words";
    throw new EngineError("InvalidArgument", `compare: text: expected ${expected}`, { option: "text", expected });
  }
  const length = new TextEncoder().encode(part).length;
  const measured = async (source: ModelSource, done: 0 | 1): Promise<ComparedRow> => {
    const { rows } = await measureQuality(load, source, part, {
      kv: [loading.kvCacheType ?? "auto"],
      against: before,
      load: loading,
      signal,
      onProgress: (share) => onProgress((done + share) / 2),
      ids: done > 0 ? ids : null,
    });
    const [row] = rows as [QualityRow];
    return { ...row, bitsPerByte: (row.nll * row.tokens) / Math.LN2 / length, size: sizes[done] };
  };
  return { before: await measured(before, 0), after: await measured(after, 1) };
}
