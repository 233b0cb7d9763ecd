/** Whether a model of the catalogue fits, from its shape alone: nothing is asked of a server. */

import { syntheticSource } from "../bench/synthetic.ts";
import type { CanRun, CanRunOptions, MemoryNeeds, ModelSource } from "../types/index.ts";
import type { CatalogueModel } from "./models.ts";

export interface Fit {
  /** null where nothing tells. */
  ok: boolean | null;
  /** A model is planned by its shape. Where that is not known, the size of its file is compared with the memory. */
  by: "shape" | "size" | null;
  /** By the shape alone. */
  needed: MemoryNeeds | null;
  reason?: string;
  suggestion?: CanRun["suggestion"];
}

/** What `bench` takes to measure a shape, without a download. */
export interface BenchOfShape {
  shape: string;
  type: string;
  embedding: string;
}

/** The context that a load takes where nothing is said, for models that are trained for more. */
const USUAL_CONTEXT = 4096;

/** What the model needs with these options; null where its shape is not known. */
export async function plan(
  model: CatalogueModel,
  canRun: (source: ModelSource, options: CanRunOptions) => Promise<CanRun>,
  options: CanRunOptions,
): Promise<CanRun | null> {
  const shape = benchOf(model);
  const contextLength = Math.min(model.context ?? USUAL_CONTEXT, USUAL_CONTEXT);
  return shape && (await canRun(syntheticSource(shape), { contextLength, ...options }));
}

export function benchOf({ shape }: CatalogueModel): BenchOfShape | null {
  if (!shape) return null;
  const { type, embedding, ...sizes } = shape;
  const words = Object.entries(sizes).map(([name, value]) => `${name}=${value}`);
  // One that has the same sizes.
  return { shape: [shape.interval ? "bonsai27b" : "2b4t", ...words].join(), type, embedding };
}

/** @param available bytes, for models of which nothing but the size of the file is known */
export function fitOf({ bytes }: CatalogueModel, planned: CanRun | null, available: number): Fit {
  if (planned) {
    const { ok, needed, reason, suggestion } = planned;
    return { ok, by: "shape", needed, ...(reason ? { reason } : {}), ...(suggestion ? { suggestion } : {}) };
  }
  if (bytes === null) return { ok: null, by: null, needed: null };
  return { ok: bytes < available, by: "size", needed: null };
}
