/** A picture of a model's own ternary weights: a corner of one matrix, a square each. */

import { percent } from "./format.js";

/** Headers that are longer belong to models of hundreds of tensors; those go without a picture. */
const MAX_HEADER = 256 << 10;

/**
 * The widest of the first packed matrices of a safetensors file, as Hugging Face packs them: four values a byte, each
 * plus one in two bits, from rows a quarter of the matrix apart.
 */
export async function readWeights(read) {
  const length = Number(new DataView(await read(0, 8)).getBigUint64(0, true));
  if (length > MAX_HEADER) return null;
  const header = JSON.parse(new TextDecoder().decode(await read(8, length)));
  const packed = Object.entries(header).filter(([, { dtype, shape }]) => dtype === "U8" && shape.length === 2);
  const [best] = packed.sort(([, a], [, b]) => b.shape[1] - a.shape[1] || a.data_offsets[0] - b.data_offsets[0]);
  if (!best) return null;
  const [name, { shape, data_offsets: offsets }] = best;
  const bytes = new Uint8Array(await read(8 + length + offsets[0], offsets[1] - offsets[0]));
  return new Weights(name.replace(/\.weight$/, ""), shape, bytes);
}

class Weights {
  constructor(name, [packedRows, columns], bytes) {
    this.name = name;
    this.rows = 4 * packedRows;
    this.columns = columns;
    this.packedRows = packedRows;
    this.bytes = bytes;
  }

  at(row, column) {
    const byte = this.bytes[(row % this.packedRows) * this.columns + column];
    return ((byte >> (2 * Math.floor(row / this.packedRows))) & 3) - 1;
  }

  /** Shares of −1, 0 and +1 in the whole matrix. */
  shares() {
    const counts = [0, 0, 0];
    for (const byte of this.bytes) {
      for (let shift = 0; shift < 8; shift += 2) counts[(byte >> shift) & 3]++;
    }
    return counts.map((count) => count / (4 * this.bytes.length));
  }
}

/** In CSS pixels: a square and the gap after it. */
const PITCH = 7;
const GAP = 1.5;

export class WeightsPicture {
  #figure;
  #canvas;
  #weights = null;

  constructor(figure) {
    this.#figure = figure;
    this.#canvas = figure.querySelector("canvas");
    new ResizeObserver(() => this.#paint()).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  /** Shows a model's weights, or nothing where it has none of this kind. */
  show(weights) {
    this.#weights = weights;
    this.#figure.hidden = !weights;
    if (!weights) return;
    const [minus, zero, plus] = weights.shares().map(percent);
    const caption = this.#figure.querySelector("figcaption");
    const parts = [
      ["minus", `−1 ${minus}`],
      ["zero", `0 ${zero}`],
      ["plus", `+1 ${plus}`],
    ].map(([kind, text]) => {
      const part = document.createElement("span");
      part.className = `key ${kind}`;
      part.textContent = text;
      return part;
    });
    const place = document.createElement("span");
    place.textContent = `${weights.name}, ${weights.rows} × ${weights.columns}`;
    caption.replaceChildren(...parts, place);
    this.#paint();
  }

  /** Zeros alone while the model is on its way. */
  #paint() {
    const weights = this.#weights;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (width === 0) return;
    const ratio = devicePixelRatio;
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(this.#canvas);
    const colours = ["--minus", "--zero", "--plus"].map((name) => style.getPropertyValue(name));
    const context = this.#canvas.getContext("2d");
    // Whole device pixels: edges stay sharp at any zoom.
    const pitch = Math.max(2, Math.round(PITCH * ratio));
    const side = pitch - Math.max(1, Math.round(GAP * ratio));
    const rows = Math.min(weights?.rows ?? Infinity, Math.floor(this.#canvas.height / pitch));
    const columns = Math.min(weights?.columns ?? Infinity, Math.ceil(this.#canvas.width / pitch));
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        context.fillStyle = colours[(weights?.at(row, column) ?? 0) + 1];
        context.fillRect(column * pitch, row * pitch, side, side);
      }
    }
  }
}
