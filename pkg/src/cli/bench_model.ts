/** The model that a benchmark runs: one that exists, or one made here. */

import { synthetic } from "../bench/synthetic.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { ModelSource } from "../types/index.ts";
import type { Args } from "./args.ts";
import { source } from "./model.ts";
import { UsageError } from "./syntax.ts";

export function modelOf(args: Args): { source: ModelSource; name: string } {
  const shape = args.text("shape");
  const [model] = args.operands;
  if ((shape === undefined) === (model === undefined)) throw new UsageError("give either MODEL or --shape");
  const [type, embedding] = [args.text("weightType"), args.text("embeddingType")];
  if (shape === undefined) {
    if (type ?? embedding) throw new UsageError("--type and --embedding-type belong to --shape");
    return { source: source(args), name: shownSource(model!) };
  }
  const words = { shape, ...(type ? { type } : {}), ...(embedding ? { embedding } : {}) };
  try {
    return { source: synthetic(words), name: Object.values(words).join(" ") };
  } catch (error) {
    throw error instanceof EngineError ? new UsageError(error.message, error.detail) : error;
  }
}
