/**
 * How fast models of the catalogue are expected to write here. Of each kind of weights a cut model is made and run for a moment, and its
 * times are scaled by the weights of the whole ones: nothing is downloaded.
 */

import { kinds } from "../bench/shapes.ts";
import { percentile } from "../bench/stats.ts";
import { syntheticSource } from "../bench/synthetic.ts";
import type { LoadOptions, Model, ModelSource } from "../types/index.ts";
import type { AbortSignal } from "../types/web.ts";
import { benchOf } from "./fit.ts";
import type { CatalogueModel } from "./models.ts";

type Load = (source: ModelSource, options: LoadOptions) => Promise<Model>;
type Shape = NonNullable<CatalogueModel["shape"]>;
type Shaped = CatalogueModel & { shape: Shape };

export interface SpeedOptions {
  /** Options of the loads. */
  load?: LoadOptions;
  signal?: AbortSignal | undefined;
  /** Milliseconds after which no further kind is measured. @default 10 seconds */
  budgetMs?: number;
  /** Is told each speed as soon as it is known. */
  onSpeed?(model: CatalogueModel, tokensPerSecond: number): void;
}

const BUDGET_MS = 10_000;
/** Of the layers and of the head of a cut model: together more than most caches hold, and soon packed. */
const CUT_BYTES = 32e6;
/** Tokens of a run, and runs, of which the median counts. */
const [TOKENS, RUNS] = [12, 3];
const CONTEXT = 64;

/** Milliseconds of a token for one weight. */
interface Cost {
  layers: number;
  head: number;
}

/** Tokens a second of each model whose shape is known, in short conversations; those that the time does not suffice for are left out. */
export async function expectedSpeeds(
  models: readonly CatalogueModel[],
  load: Load,
  { load: options = {}, signal, budgetMs = BUDGET_MS, onSpeed }: SpeedOptions = {},
): Promise<Map<CatalogueModel, number>> {
  const begun = performance.now();
  const speeds = new Map<CatalogueModel, number>();
  const known = new Map<string, number>();
  for (const alike of byKind(models)) {
    if (performance.now() - begun > budgetMs) break;
    const cost = await measured(alike[0]!, known, (cut) => tokenMs(cut, load, { ...options, signal }));
    for (const model of alike) {
      const { layers, head } = weights(model.shape);
      const speed = 1000 / (cost.layers * layers * model.shape.layers + cost.head * head);
      speeds.set(model, speed);
      onSpeed?.(model, speed);
    }
  }
  return speeds;
}

/** Models of the same storage types, the smallest first. */
function byKind(models: readonly CatalogueModel[]): Shaped[][] {
  const found = new Map<string, Shaped[]>();
  for (const model of models.filter((one): one is Shaped => one.shape !== null)) {
    // A few matrices may be of other types.
    const kind = `${model.shape.type.split(",")[0]} ${model.shape.embedding}`;
    found.set(kind, [...(found.get(kind) ?? []), model]);
  }
  const size = ({ shape }: Shaped) => shape.layers * weights(shape).layers;
  return [...found.values()].map((alike) => alike.sort((a, b) => size(a) - size(b)));
}

/** Weights of one layer, of a hybrid on average, and of the head. */
const weights = (shape: Shape) => {
  const { hidden, heads, kv, head, ffn, vocab, interval = 1, kheads = 0, vheads = 0, state = 0 } = shape;
  // A gate goes with each query of a hybrid.
  const attention = head * ((interval > 1 ? 3 : 2) * heads + 2 * kv);
  const deltaNet = state * (2 * kheads + 3 * vheads) + 2 * vheads;
  const mixed = (attention + (interval - 1) * deltaNet) / interval;
  return { layers: hidden * (mixed + 3 * ffn), head: vocab * hidden };
};

/** @param known what a weight of layers costs, by the storage type */
async function measured(
  model: Shaped,
  known: Map<string, number>,
  tokenMs: (cut: Shaped) => Promise<number>,
): Promise<Cost> {
  const { shape } = model;
  const { types } = kinds(benchOf(model)!);
  const one = weights(shape);
  const bytes = ({ bytes, values }: { bytes: number; values: number }, count: number) => (count * bytes) / values;
  const layers = Math.min(shape.layers, Math.max(2, Math.ceil(CUT_BYTES / bytes(types.ffn_gate, one.layers))));
  const vocab = Math.min(shape.vocab, Math.ceil(CUT_BYTES / bytes(types.output, shape.hidden)));
  const head = vocab * shape.hidden;
  const cut = (layers: number) => tokenMs({ ...model, shape: { ...shape, layers, vocab } });
  if (types.output === types.ffn_gate) {
    const each = (await cut(layers)) / (layers * one.layers + head);
    return { layers: each, head: each };
  }
  const single = await cut(1);
  let each = known.get(shape.type);
  if (each === undefined) {
    const many = await cut(layers);
    // A busy machine may take longer for less.
    each = Math.max(many - single, many / 1000) / (layers - 1) / one.layers;
    known.set(shape.type, each);
  }
  return { layers: each, head: Math.max(single - each * one.layers, 0) / head };
}

/** Milliseconds of a token. */
async function tokenMs(cut: Shaped, load: Load, options: LoadOptions): Promise<number> {
  const model = await load(syntheticSource(benchOf(cut)!), { ...options, contextLength: CONTEXT });
  try {
    const found: number[] = [];
    for (let time = 0; time < RUNS; time++) {
      const work = { maxTokens: TOKENS, temperature: 0, ignoreEos: true, signal: options.signal };
      const { timings } = await model.generate([1, 2, 3, 4], work).finished;
      found.push(timings.predictedMs / (timings.predictedN - 1));
    }
    return percentile(found, 50);
  } finally {
    await model.close();
  }
}
