/** A Q1_0 or Q2_0 GGUF of architecture qwen3 as MLX would hold it: words of codes, a scale and a bias for each group. */

import { goldenFile, goldenFolder } from "../../source/support/models.ts";
import { type Files, json, readGguf } from "../../source/support/split.ts";
import { Writer } from "../../source/support/writer.ts";
import { half } from "./convert.ts";

const NAMES: Record<string, string> = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
};

export async function mlxFolder(gguf: string, bits: 1 | 2): Promise<Files> {
  const group = bits === 1 ? 128 : 64;
  const entries: { name: string; dtype: string; shape: number[]; data: Uint8Array }[] = [];
  for (const { name, dims, type, data } of readGguf(await goldenFile(`gguf/${gguf}.gguf`)).tensors) {
    const [, layer, stem] = /^(?:blk\.(\d+)\.)?(\w+)\.weight$/.exec(name) as unknown as [string, string?, string?];
    const base = `${layer === undefined ? "" : `model.layers.${layer}.`}${NAMES[stem!]}`;
    if (type === 0) {
      entries.push({ name: `${base}.weight`, dtype: "F32", shape: dims, data: data.subarray(0, 4 * dims[0]!) });
      continue;
    }
    const [cols, rows] = dims as [number, number];
    const count = (rows * cols) / group;
    const size = 2 + (group * bits) / 8;
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const codes = new Writer();
    const [scales, biases] = [new Float32Array(count), new Float32Array(count)];
    for (let i = 0; i < count; i++) {
      const d = half(view.getUint16(size * i, true));
      // One bit: −d and +d. Two bits: −d, 0 and +d.
      scales[i] = bits === 1 ? 2 * d : d;
      biases[i] = -d;
      codes.bytes(data.subarray(size * i + 2, size * (i + 1)));
    }
    const shape = [rows, cols / group];
    entries.push(
      { name: `${base}.weight`, dtype: "U32", shape: [rows, (cols * bits) / 32], data: codes.done() },
      { name: `${base}.scales`, dtype: "F32", shape, data: new Uint8Array(scales.buffer) },
      { name: `${base}.biases`, dtype: "F32", shape, data: new Uint8Array(biases.buffer) },
    );
  }
  const { "config.json": config, "model.safetensors": _, ...side } = await goldenFolder("models/qwen3");
  const quantization = { bits, group_size: group };
  return {
    ...side,
    "config.json": json({ ...JSON.parse(new TextDecoder().decode(config)), quantization }),
    "model.safetensors": safetensors(entries),
  };
}

export function safetensors(entries: { name: string; dtype: string; shape: number[]; data: Uint8Array }[]) {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const { name, dtype, shape, data } of entries) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.length] };
    offset += data.length;
  }
  const text = json(header);
  const writer = new Writer().u64(text.length).bytes(text);
  for (const { data } of entries) writer.bytes(data);
  return writer.done();
}
