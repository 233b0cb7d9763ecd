/** The model that a benchmark runs: one that exists, or one made here. */

import { syntheticSource } from "../bench/synthetic.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { ModelSource } from "../types/index.ts";
import type { Args } from "./args.ts";
import { sourceOf } from "./model.ts";
import { UsageError } from "./syntax.ts";

interface Named {
  model?: string;
  shape?: string;
  type?: string;
  embedding?: string;
  seed?: number;
}

export function modelOf(args: Args): { source: ModelSource; name: string } {
  const shape = args.text("shape");
  const [model = args.text("serverModel")] = args.operands;
  if ((shape === undefined) === (model === undefined)) throw new UsageError("give either MODEL or --shape");
  const [type, embedding] = [args.text("weightType"), args.text("embeddingType")];
  if (shape === undefined && (type ?? embedding)) throw new UsageError("--type and --embedding-type belong to --shape");
  try {
    return namedModel({
      ...(model ? { model } : {}),
      ...(shape ? { shape } : {}),
      ...(type ? { type } : {}),
      ...(embedding ? { embedding } : {}),
    });
  } catch (error) {
    throw error instanceof EngineError ? new UsageError(error.message, error.detail) : error;
  }
}

/** One of `model` and `shape`. */
export function namedModel({ model, shape, ...others }: Named): { source: ModelSource; name: string } {
  if (shape === undefined) return { source: sourceOf(model!), name: shownSource(model!) };
  const { type, embedding, seed } = others;
  const words = { shape, ...(type ? { type } : {}), ...(embedding ? { embedding } : {}) };
  return {
    source: syntheticSource({ ...words, ...(seed === undefined ? {} : { seed }) }),
    name: Object.values(words).join(" "),
  };
}
