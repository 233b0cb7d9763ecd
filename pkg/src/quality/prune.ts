/** Takes layers away that a model needs least. The codes of those that stay are copied as they are. */

import { knee } from "../bench/knee.ts";
import type { RawPair } from "../convert/header.ts";
import { ACTIVATIONS_KEY } from "../options/activation_key.ts";
import { pruneFlags as rows } from "../options/table/quality.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions, Model, ModelSource } from "../types/index.ts";
import { Gguf } from "./gguf.ts";
import { keptMap, numberedKey } from "./kept_map.ts";
import {
  changed,
  kept,
  type NewFile,
  newGguf,
  type Opening,
  pair,
  sameFile,
  sizeOf,
  toBlob,
  whole,
  withFiles,
} from "./new_gguf.ts";
import { contextOf, enoughTokens, idsOf, meanLoss } from "./perplexity.ts";
import { parameters, SIZE_LABEL, sizeLabel } from "./size_label.ts";

/** How layers are chosen; see the guide. */
export type PruneBy = "variance" | "influence" | "search";

export interface PruneOptions {
  /** Layers that stay. */
  targetLayers: number;
  /** Texts to choose by. Every other one is held out, for the curve. */
  texts: readonly string[];
  /** @default influence */
  by?: PruneBy | undefined;
  /** The most tokens of the texts for choosing, and as many for the curve. @default 2048 tokens */
  tokens?: number | undefined;
  /** The fewest layers of the curve. @default targetLayers */
  curveTo?: number | undefined;
  load?: LoadOptions | undefined;
  /** What was worked out before an interruption, by what it is of; new results are added. */
  memo?: Map<string, number> | undefined;
  signal?: AbortSignal | undefined;
  /** Called after each measured model: what it was, and the share that is done. */
  onProgress?: ((what: string, share: number) => void) | undefined;
}

export interface PrunePoint {
  layers: number;
  /** The layer that went, by its number in the whole model; null for the whole model. */
  dropped: number | null;
  /** Of the held-out texts. */
  perplexity: number;
}

export interface Pruned {
  file: NewFile;
  by: PruneBy;
  /** Layers of the whole model, and those that stay, by their numbers in it. */
  before: number;
  kept: number[];
  /** From the whole model down. */
  curve: PrunePoint[];
  /** Fewest layers before the perplexity turns up; null where the curve does not bend. */
  knee: number | null;
  /** What each layer was chosen by, least first to go, as long as more than a third of them were left; null of `search`. */
  scores: number[] | null;
  bytesBefore: number;
  bytesAfter: number;
}

export type Load = (source: ModelSource, options: LoadOptions) => Promise<Model>;

const ROTATED = "prism.hadamard.weight_names";
/** Tokens of a text whose last state is compared. */
const STATE = 64;
/**
 * The share of layers below which every choice is by loss. Scores are of the whole model, and say little of one that has lost two thirds
 * of itself: of SmolLM2's last six layers they left a perplexity of 1.6e10, a thousand times that of random ones. Few layers are tried soon.
 */
const FEW = 1 / 3;

export async function pruneModel(load: Load, opening: Opening, options: PruneOptions): Promise<Pruned> {
  const { targetLayers, by = rows.by.default, signal } = options;
  const numbered = numberedKey(options.load);
  if (numbered !== undefined) {
    const reason = `prune: activations: ${wrongKey(numbered)}`;
    throw new EngineError("InvalidArgument", reason, { option: "activations", key: numbered });
  }
  return withFiles(opening, signal, async (files) => {
    const gguf = await Gguf.open(files.weights, signal);
    const before = layersOf(gguf);
    if (!Number.isInteger(targetLayers) || targetLayers < 1 || targetLayers > before) {
      const expected = `an integer from 1 to ${before}`;
      throw new EngineError("InvalidArgument", `prune: targetLayers: expected ${expected}, got ${targetLayers}`, {
        option: "targetLayers",
        expected,
        found: String(targetLayers),
      });
    }
    const all = Array.from({ length: before }, (_, layer) => layer);
    const trial = new Trial(load, opening, gguf, options);
    const { order, scores } = await trial.order(all, by, Math.min(targetLayers, options.curveTo ?? targetLayers));
    const curve = await trial.curve(all, order);
    const stay = all.filter((layer) => !order.slice(0, before - targetLayers).includes(layer));
    const same = stay.length === before ? sameFile(opening, files.weights) : null;
    const file = same ?? withLayers(opening, gguf, stay);
    return {
      file,
      by,
      before,
      kept: stay,
      curve,
      knee: kneeOf(curve),
      scores,
      bytesBefore: sizeOf(files.weights),
      bytesAfter: file.size,
    };
  });
}

/** Why a load's map cannot have a key. */
export const wrongKey = (key: string): string =>
  `"${key}" names layers by number, and numbers change as layers go: expected keys of blk.*, or a map in the model's header, which is renumbered`;

/** The texts that do not choose: every other one, or of a single text the second half. */
export const heldOut = (texts: readonly string[]): string =>
  texts.length === 1 ? texts[0]!.slice(texts[0]!.length >> 1) : texts.filter((_, i) => i % 2 === 1).join("\n");

function layersOf(gguf: Gguf): number {
  const { architecture } = gguf;
  const refuse = (key: string, reason: string) =>
    new EngineError("UnsupportedSetting", `prune: ${architecture}: ${reason}`, { key, found: architecture });
  if (gguf.tensors.some(({ name }) => /\.ssm_/.test(name))) {
    throw refuse("general.architecture", "a hybrid's layers stand in a fixed pattern, which a layer less would break");
  }
  if (Number(gguf.own("nextn_predict_layers") ?? 0) > 0) {
    throw refuse(`${architecture}.nextn_predict_layers`, "a head for further tokens reads the last layer");
  }
  if (gguf.metadata[ROTATED] !== undefined) {
    throw refuse(ROTATED, "the matrices whose inputs are rotated are listed by the number of their layer");
  }
  const count = gguf.own("block_count");
  if (typeof count === "number" && count > 0) return count;
  throw refuse(`${architecture}.block_count`, "the header does not say how many layers there are");
}

/** The model with some of its layers, in their order. */
export function withLayers(opening: Opening, gguf: Gguf, layers: readonly number[]): NewFile {
  const key = `${gguf.architecture}.block_count`;
  const count = Number(gguf.get(key));
  const map = keptMap(gguf, layers);
  const values = new Map<string, RawPair | null>([
    [key, pair({ key, value: layers.length })],
    [ACTIVATIONS_KEY, map && pair({ key: ACTIVATIONS_KEY, value: JSON.stringify(map) })],
  ]);
  for (const [name, value] of Object.entries(gguf.metadata)) {
    const array = typeof value === "object" && name.startsWith(`${gguf.architecture}.`) ? gguf.array(name) : undefined;
    if (array?.count !== count) continue;
    const numbers = gguf.numbers(name);
    if (numbers) values.set(name, pair({ key: name, value: Int32Array.from(layers, (layer) => numbers[layer]!) }));
  }
  const place = new Map(layers.map((layer, at) => [layer, at] as const));
  const tensors = gguf.tensors.flatMap((tensor) => {
    const [, layer, rest] = /^blk\.(\d+)\.(.*)$/.exec(tensor.name) ?? [];
    if (layer === undefined) return [kept(tensor, [whole(tensor)])];
    const at = place.get(Number(layer));
    return at === undefined ? [] : [{ ...kept(tensor, [whole(tensor)]), name: `blk.${at}.${rest}` }];
  });
  if (gguf.get(SIZE_LABEL) !== undefined) {
    values.set(SIZE_LABEL, pair({ key: SIZE_LABEL, value: sizeLabel(parameters(tensors)) }));
  }
  return newGguf(opening, gguf, changed(gguf.pairs, values), tensors);
}

/** Models that a search tries to take so many layers away. */
const tries = (layers: number, drops: number): number =>
  Array.from({ length: drops }, (_, i) => layers - i).reduce((a, b) => a + b, 0);

interface Order {
  /** Which layer goes first, second and so on. */
  order: number[];
  scores: number[] | null;
}

/** Models with layers less, loaded and measured. */
class Trial {
  readonly #load: Load;
  readonly #opening: Opening;
  readonly #gguf: Gguf;
  readonly #options: PruneOptions;
  readonly #memo: Map<string, number>;
  #steps = 1;
  #done = 0;

  constructor(load: Load, opening: Opening, gguf: Gguf, options: PruneOptions) {
    this.#load = load;
    this.#opening = opening;
    this.#gguf = gguf;
    this.#options = options;
    this.#memo = options.memo ?? new Map();
  }

  async order(all: readonly number[], by: PruneBy, least: number): Promise<Order> {
    const drops = all.length - least;
    if (drops === 0) return { order: [], scores: null };
    const curve = drops + 1;
    if (by === "search") {
      this.#steps = curve + tries(all.length, drops);
      return { order: await this.#search(all, drops), scores: null };
    }
    const searched = Math.max(0, Math.floor(FEW * all.length) - least);
    const scored = drops - searched;
    this.#steps = curve + all.length + 1 + tries(all.length - scored, searched);
    const scores = by === "influence" ? await this.#influence(all) : await this.#variance(all);
    const order = [...all].sort((a, b) => scores[a]! - scores[b]! || b - a).slice(0, scored);
    const left = all.filter((layer) => !order.includes(layer));
    return { order: [...order, ...(await this.#search(left, searched))], scores };
  }

  /** The perplexity of the held-out texts, from all layers down. */
  async curve(all: readonly number[], order: readonly number[]): Promise<PrunePoint[]> {
    const points: PrunePoint[] = [];
    for (let gone = 0; gone <= order.length; gone++) {
      const layers = all.filter((layer) => !order.slice(0, gone).includes(layer));
      const perplexity = await this.#perplexity(layers, "curve");
      points.push({ layers: layers.length, dropped: order[gone - 1] ?? null, perplexity });
    }
    return points;
  }

  /** Takes away the layer without which the text is predicted best, again and again. */
  async #search(all: readonly number[], drops: number): Promise<number[]> {
    const order: number[] = [];
    let left = [...all];
    while (order.length < drops) {
      let [best, at] = [Infinity, left[0]!];
      for (const layer of left) {
        const found = await this.#perplexity(
          left.filter((one) => one !== layer),
          "choose",
        );
        if (found < best) [best, at] = [found, layer];
      }
      order.push(at);
      left = left.filter((one) => one !== at);
    }
    return order;
  }

  /** How far the last hidden state turns without each layer: one minus the cosine, in the mean over texts. */
  #influence(all: readonly number[]): Promise<number[]> {
    return this.#scored("influence", all, (whole, without) =>
      mean(whole.map((state, i) => 1 - cosine(state, without[i]!))),
    );
  }

  /**
   * How much each layer's own activations vary: the variance of what it adds to the last hidden state, from state to state. A layer that
   * adds the same to every state can be done without.
   */
  #variance(all: readonly number[]): Promise<number[]> {
    return this.#scored("variance", all, (whole, without) =>
      variance(whole.map((state, i) => state.map((value, at) => value - without[i]![at]!))),
    );
  }

  /** A number for each layer, from the states with and without it. */
  async #scored(
    name: string,
    all: readonly number[],
    score: (whole: Float32Array[], without: Float32Array[]) => number,
  ): Promise<number[]> {
    const whole = await this.#states(all);
    const scores: number[] = [];
    for (const layer of all) {
      const key = `${name} ${layer}`;
      const known = this.#memo.get(key);
      const found = known ?? score(whole, await this.#states(all.filter((one) => one !== layer)));
      this.#memo.set(key, found);
      scores.push(found);
    }
    return scores;
  }

  async #states(layers: readonly number[]): Promise<Float32Array[]> {
    return this.#with(layers, async (model) => {
      const ids = await this.#ids(model, "choose");
      const size = Math.min(STATE, model.info.contextLength);
      const texts: number[][] = [];
      for (let at = 0; at < ids.length; at += size) texts.push(ids.slice(at, at + size));
      return model.embed(texts, { pooling: "last", normalize: true, signal: this.#options.signal });
    });
  }

  async #perplexity(layers: readonly number[], part: "choose" | "curve"): Promise<number> {
    const key = `${part} ${layers.join()}`;
    const known = this.#memo.get(key);
    if (known !== undefined) {
      this.#step(key);
      return known;
    }
    const found = await this.#with(layers, async (model) => {
      const ids = await this.#ids(model, part);
      return Math.exp(await meanLoss(model, ids, this.#options.signal));
    });
    this.#memo.set(key, found);
    return found;
  }

  #step(what: string): void {
    this.#done++;
    this.#options.onProgress?.(what, Math.min(1, this.#done / this.#steps));
  }

  async #with<T>(layers: readonly number[], work: (model: Model) => Promise<T>): Promise<T> {
    const { signal, load } = this.#options;
    const blob = await toBlob(withLayers(this.#opening, this.#gguf, layers), signal);
    const model = await this.#load(blob, { contextLength: contextOf(this.#gguf), warmup: false, ...load, signal });
    try {
      const result = await work(model);
      this.#step(layers.join());
      return result;
    } finally {
      await model.close();
    }
  }

  /** Every other text chooses, the rest is held out; a single text is halved. */
  async #ids(model: Model, part: "choose" | "curve"): Promise<number[]> {
    const { texts, tokens = rows.calibrationTokens.default } = this.#options;
    const wanted = part === "choose" ? 0 : 1;
    const lists: number[][] = [];
    let count = 0;
    if (texts.length === 1) {
      const ids = await idsOf(model, texts[0]!);
      const half = ids.length >> 1;
      lists.push(wanted === 0 ? ids.slice(0, half) : ids.slice(half));
    }
    for (let i = wanted; texts.length > 1 && i < texts.length && count < tokens; i += 2) {
      lists.push(await idsOf(model, texts[i]!, tokens));
      count += lists.at(-1)!.length;
    }
    return enoughTokens(lists.flat().slice(0, tokens), "prune", "calibrationData");
  }
}

/** Fewest layers before the perplexity turns up. Perplexity counts by its logarithm. */
function kneeOf(curve: readonly PrunePoint[]): number | null {
  const gone = curve.map(({ layers }) => curve[0]!.layers - layers);
  const at = knee(
    gone,
    curve.map(({ perplexity }) => Math.log(perplexity)),
    "down",
  );
  return at === null ? null : curve[at]!.layers;
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);

function cosine(a: Float32Array, b: Float32Array): number {
  const size = Math.sqrt(dot(a, a) * dot(b, b));
  return size > 0 ? dot(a, b) / size : 0;
}

/** The mean over places of the variance from row to row. */
function variance(rows: readonly Float32Array[]): number {
  const width = rows[0]!.length;
  let total = 0;
  for (let at = 0; at < width; at++) {
    const values = rows.map((row) => row[at]!);
    const middle = mean(values);
    total += mean(values.map((value) => (value - middle) ** 2));
  }
  return total / width;
}
