/**
 * Makes models of any size: a GGUF with a valid header and random weights, so that speed can be measured without a download. The
 * text of such a model means nothing.
 */

import { type BlockType, randomBits, randomBlocks } from "./blocks.ts";
import { type Kinds, kinds, type MatrixName, rotatable, type Shape, type SyntheticOptions, wrong } from "./shapes.ts";

const ALIGNMENT = 32;
/** Bytes of the pattern that tensors of a type repeat, at least. A blob keeps it once, however often it occurs. */
const PIECE = 1 << 20;
/** Positions that the convolution of a gated delta net covers. */
const CONV_KERNEL = 4;

interface Tensor {
  name: string;
  /** Values of a row first, as GGUF has it. */
  dims: number[];
  id: number;
  data: Blob;
}

/** Bytes of a part, about: Node cannot slice a Blob of 4 GiB. */
const PART = 2 ** 31;

/** The model as one file. */
export function synthetic(options: SyntheticOptions): File {
  const model = kinds(options);
  const made = tensors(model, values(options.seed ?? 158));
  return file(model, made, { all: made, name: `${options.shape}.gguf` });
}

/** The model as a source of any size: a large one in several parts. */
export function syntheticSource(options: SyntheticOptions): File | Record<string, File> {
  const model = kinds(options);
  const made = tensors(model, values(options.seed ?? 158));
  const parts: Tensor[][] = [];
  let size = PART;
  for (const tensor of made) {
    if (size >= PART) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)!.push(tensor);
    size += tensor.data.size;
  }
  if (parts.length === 1) return synthetic(options);
  const number = (part: number) => String(part).padStart(5, "0");
  const named = parts.map((own, part) => {
    const name = `${options.shape}-${number(part + 1)}-of-${number(parts.length)}.gguf`;
    return [name, file(model, own, { all: made, name, part, parts: parts.length })] as const;
  });
  return Object.fromEntries(named);
}

/** Which part of a model a file is. */
interface Place {
  name: string;
  /** Those of all parts. */
  all: readonly Tensor[];
  part?: number;
  parts?: number;
}

function file(model: Kinds, made: readonly Tensor[], place: Place): File {
  const header = new Writer().text("GGUF").u32(3).u64(made.length);
  metadata(header, model, place);
  let offset = 0;
  for (const { name, dims, id, data } of made) {
    header.string(name).u32(dims.length);
    for (const dim of dims) header.u64(dim);
    header.u32(id).u64(offset);
    offset += data.size + padding(data.size);
  }
  const parts = made.flatMap(({ data }) => [data, new Uint8Array(padding(data.size))]);
  const { bytes } = header;
  return new File([bytes, new Uint8Array(padding(bytes.length)), ...parts], place.name);
}

const padding = (length: number) => (ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT;

function metadata(header: Writer, { name, shape }: Kinds, { all, part = 0, parts }: Place): void {
  const { arch, rotated } = shape;
  const numbers: Record<string, number> = {
    context_length: 1 << 17,
    embedding_length: shape.hidden,
    block_count: shape.layers + (shape.mtp ?? 0),
    feed_forward_length: shape.ffn,
    "attention.head_count": shape.heads,
    "attention.head_count_kv": shape.kv,
    "attention.key_length": shape.head,
    "attention.value_length": shape.head,
    "rope.dimension_count": shape.interval ? shape.head / 4 : shape.head,
    vocab_size: shape.vocab,
    ...hybridNumbers(shape),
  };
  const floats: Record<string, number> = { "rope.freq_base": 500000, "attention.layer_norm_rms_epsilon": 1e-5 };
  const splits = parts ? { no: part, count: parts, "tensors.count": all.length } : {};
  const count = [numbers, floats, splits].reduce((sum, keys) => sum + Object.keys(keys).length, 2);
  header.u64(count + (shape.interval ? 1 : 0) + (rotated ? ROTATION_KEYS : 0));
  header.string("general.architecture").u32(8).string(arch);
  header.string("general.name").u32(8).string(name);
  for (const [key, value] of Object.entries(numbers)) header.string(`${arch}.${key}`).u32(4).u32(value);
  for (const [key, value] of Object.entries(splits)) header.string(`split.${key}`).u32(4).u32(value);
  for (const [key, value] of Object.entries(floats)) header.string(`${arch}.${key}`).u32(6).f32(value);
  if (shape.interval) ropeSections(header.string(`${arch}.rope.dimension_sections`), shape.head / 8);
  if (rotated) rotation(header, all, rotated);
}

/** How many pairs turn with time, height and width. In a text all three are the position, but llama.cpp reads no hybrid without them. */
function ropeSections(header: Writer, pairs: number): void {
  const third = Math.ceil(pairs / 3);
  header.u32(9).u32(5).u64(4);
  for (const count of [third, third, pairs - 2 * third, 0]) header.u32(count);
}

const ROTATION_KEYS = 10;

/** Says that the weights of all large matrices are stored rotated, as `prism.hadamard` version 1 does. */
function rotation(header: Writer, all: readonly Tensor[], block: number): void {
  const own = all.filter(({ name }) => rotatable.has(name.replace(/^blk\.\d+\.|\.weight$/g, "")));
  const widths = [...new Set(own.map(({ dims }) => dims[0]!))];
  const bits = randomBits(block);
  const signs = widths.flatMap((width) => Array.from({ length: width }, () => 1 - 2 * (bits() >>> 31)));
  const key = (name: string) => header.string(`prism.hadamard.${name}`);
  const list = (name: string, type: number, length: number) => key(name).u32(9).u32(type).u64(length);
  const word = (name: string, value: string) => key(name).u32(8).string(value);
  key("version").u32(4).u32(1);
  word("transform", "normalized-sylvester-walsh-hadamard");
  word("axis", "input-last-dimension");
  key("block_size").u32(4).u32(block);
  word("sign_mode", "explicit");
  list("sign_widths", 5, widths.length);
  for (const width of widths) header.u32(width);
  list("sign_values", 5, signs.length);
  for (const sign of signs) header.u32(sign);
  list("weight_names", 8, own.length);
  for (const { name } of own) header.string(name);
  list("inverse_weight_names", 8, 1).string("token_embd.weight");
  key("gdn_v_grouped").u32(7).text("\u0001");
}

function hybridNumbers({ interval, kheads = 0, vheads = 0, state = 0, mtp }: Shape): Record<string, number> {
  if (!interval) return {};
  return {
    ...(mtp && { nextn_predict_layers: mtp }),
    full_attention_interval: interval,
    "ssm.conv_kernel": CONV_KERNEL,
    "ssm.state_size": state,
    "ssm.group_count": kheads,
    "ssm.time_step_rank": vheads,
    "ssm.inner_size": vheads * state,
  };
}

function tensors({ shape, types }: Kinds, filled: (type: BlockType, rows: number, cols: number) => Blob): Tensor[] {
  const { arch, hidden, layers, heads, kv, head, ffn, vocab, tied } = shape;
  const made: Tensor[] = [];
  const matrix = (prefix: string, name: MatrixName, rows: number, cols: number) => {
    const type = types[name];
    if (cols % type.values !== 0)
      throw wrong("type", `one whose blocks fit rows of ${cols} (${name})`, `${type.values} a block`);
    made.push({ name: `${prefix}${name}.weight`, dims: [cols, rows], id: type.id, data: filled(type, rows, cols) });
  };
  const vector = (name: string, dims: number[], value: number) => {
    const values = new Float32Array(dims.reduce((product, dim) => product * dim, 1)).fill(value);
    made.push({ name, dims, id: 0, data: new Blob([values]) });
  };
  const norm = (name: string, width: number) => vector(`${name}.weight`, [width], 1);
  const { interval = 1, kheads = 0, vheads = 0, state = 0, mtp = 0 } = shape;
  const deltaNet = (prefix: string) => {
    const channels = (2 * kheads + vheads) * state;
    matrix(prefix, "attn_qkv", channels, hidden);
    matrix(prefix, "attn_gate", vheads * state, hidden);
    matrix(prefix, "ssm_alpha", vheads, hidden);
    matrix(prefix, "ssm_beta", vheads, hidden);
    vector(`${prefix}ssm_conv1d.weight`, [CONV_KERNEL, channels], 0.25);
    vector(`${prefix}ssm_dt.bias`, [vheads], 0);
    vector(`${prefix}ssm_a`, [vheads], -0.1);
    norm(`${prefix}ssm_norm`, state);
    matrix(prefix, "ssm_out", hidden, vheads * state);
  };
  const attention = (prefix: string) => {
    matrix(prefix, "attn_q", heads * head * (arch === "qwen35" ? 2 : 1), hidden);
    matrix(prefix, "attn_k", kv * head, hidden);
    matrix(prefix, "attn_v", kv * head, hidden);
    if (/^qwen3/.test(arch)) for (const one of ["q", "k"]) norm(`${prefix}attn_${one}_norm`, head);
    if (arch.startsWith("bitnet")) norm(`${prefix}attn_sub_norm`, heads * head);
    matrix(prefix, "attn_output", hidden, heads * head);
  };
  matrix("", "token_embd", vocab, hidden);
  for (let layer = 0; layer < layers + mtp; layer++) {
    const prefix = `blk.${layer}.`;
    norm(`${prefix}attn_norm`, hidden);
    if ((layer + 1) % interval && layer < layers) deltaNet(prefix);
    else attention(prefix);
    if (layer >= layers) {
      matrix(prefix, "nextn.eh_proj", hidden, 2 * hidden);
      for (const one of ["enorm", "hnorm", "shared_head_norm"]) norm(`${prefix}nextn.${one}`, hidden);
    }
    norm(`${prefix}${arch === "qwen35" ? "post_attention" : "ffn"}_norm`, hidden);
    matrix(prefix, "ffn_gate", ffn, hidden);
    matrix(prefix, "ffn_up", ffn, hidden);
    if (arch.startsWith("bitnet")) norm(`${prefix}ffn_sub_norm`, ffn);
    matrix(prefix, "ffn_down", hidden, ffn);
  }
  norm("output_norm", hidden);
  if (!tied) matrix("", "output", vocab, hidden);
  return made;
}

/**
 * The values of a matrix by its type and its sizes. Matrices of one size are the same blob: browsers share what is a whole blob, and
 * copy every part of one. No two rows of a large vocabulary are the same, since no model has so many tokens that are equally likely.
 */
function values(seed: number): (type: BlockType, rows: number, cols: number) => Blob {
  const pieces = new Map<string, Blob>();
  const made = new Map<string, Blob>();
  return (type, rows, cols) => {
    const row = cols / type.values;
    const size = rows * row * type.bytes;
    const key = `${type.id} ${size}`;
    const known = made.get(key);
    if (known) return known;
    const least = Math.floor(PIECE / type.bytes);
    // As many blocks as rows, and one more than whole rows have: each row then begins at another block.
    const blocks = rows > least ? Math.ceil(rows / row) * row + 1 : least;
    const name = `${type.id} ${blocks}`;
    const piece = pieces.get(name) ?? new Blob([randomBlocks(type, blocks, randomBits(seed + type.id))]);
    pieces.set(name, piece);
    const whole = Array.from({ length: Math.floor(size / piece.size) }, () => piece);
    const blob = new Blob([...whole, piece.slice(0, size % piece.size), ...(type.tail ? [type.tail] : [])]);
    made.set(key, blob);
    return blob;
  };
}

/** Little-endian bytes, one field after another. */
class Writer {
  readonly #bytes: number[] = [];
  readonly #view = new DataView(new ArrayBuffer(8));

  get bytes(): Uint8Array<ArrayBuffer> {
    return Uint8Array.from(this.#bytes);
  }

  u32(value: number): this {
    this.#view.setUint32(0, value, true);
    return this.#take(4);
  }

  f32(value: number): this {
    this.#view.setFloat32(0, value, true);
    return this.#take(4);
  }

  u64(value: number): this {
    this.#view.setBigUint64(0, BigInt(value), true);
    return this.#take(8);
  }

  string(text: string): this {
    return this.u64(text.length).text(text);
  }

  /** ASCII. */
  text(text: string): this {
    for (const letter of text) this.#bytes.push(letter.charCodeAt(0));
    return this;
  }

  #take(count: number): this {
    for (let at = 0; at < count; at++) this.#bytes.push(this.#view.getUint8(at));
    return this;
  }
}
