/** A model's files as the rules see them: tensors of either format, and the part for texts. */

import { loadText, type Text } from "../../host/text.ts";
import { type ModelFiles, NO_SIDE } from "../../source/files.ts";
import { HEADER_BYTES } from "../../source/limits.ts";
import type { Source } from "../../source/source.ts";
import { findTemplate } from "../../text/template_source.ts";
import type { TokenizerConfig } from "../../text/tokenizer_json.ts";
import { EngineError } from "../../types/errors.ts";
import { Gguf, typeOf } from "../gguf.ts";
import { DENSE } from "./floats.ts";
import type { Weights } from "./weights.ts";

export interface Checked {
  files: ModelFiles;
  /** Absent of safetensors. */
  gguf: Gguf | null;
  weights: Weights[];
  /** null where the tokenizer or the template cannot be read; the rules then say why. */
  text: Text | null;
  textError: EngineError | null;
  /** The file's own template, even where it is known to be wrong. */
  template: string | null;
  /** config.json of safetensors. */
  config: Record<string, unknown> | null;
}

export async function openChecked(files: ModelFiles, signal?: AbortSignal): Promise<Checked> {
  const gguf = (await isGguf(files.weights[0]!)) ? await Gguf.open(files.weights, signal) : null;
  const weights = gguf ? ggufWeights(gguf, files.weights) : await safetensorsWeights(files.weights, signal);
  const { text, textError } = await textOf(files, gguf);
  // A GGUF's own template is the one to look at, whatever lies beside it.
  const { chatTemplate: file, tokenizerConfig } = gguf ? NO_SIDE : await files.side();
  const sources = { override: "embedded", file, config: tokenizerConfig as TokenizerConfig | null, gguf };
  // One that is no text is told as an error of the text.
  const found = textError?.detail.key?.endsWith("chat_template") ? null : findTemplate(sources);
  return {
    files,
    gguf,
    weights,
    text,
    textError,
    template: found?.templates.default ?? null,
    config: files.config ? (parsed(files.config, "config.json") as Record<string, unknown>) : null,
  };
}

export async function isGguf(source: Source): Promise<boolean> {
  if (source.size < 4) return false;
  return new TextDecoder("latin1").decode(await source.read(0, 4)) === "GGUF";
}

async function textOf(files: ModelFiles, gguf: Gguf | null): Promise<Pick<Checked, "text" | "textError">> {
  const platform = { chats: () => import("../../text/chat.ts"), gguf: () => import("../../text/from_gguf.ts") };
  try {
    const text = await loadText(gguf?.metadata, gguf?.header ?? new Uint8Array(), files, platform, "embedded");
    return { text, textError: null };
  } catch (error) {
    if (error instanceof EngineError) return { text: null, textError: error };
    throw error;
  }
}

function ggufWeights(gguf: Gguf, files: readonly Source[]): Weights[] {
  return gguf.tensors.map((tensor) => ({
    name: tensor.name,
    ...placeOf(tensor.name),
    type: typeOf(tensor).name,
    dims: tensor.dims,
    stream: (signal) => files[tensor.file]!.stream(tensor.offset, tensor.bytes, signal ? { signal } : {}),
  }));
}

function placeOf(name: string): Pick<Weights, "layer" | "stem"> {
  const [, layer, stem] = /^blk\.(\d+)\.(.*)$/.exec(name) ?? [];
  return layer === undefined ? { layer: null, stem: name } : { layer: Number(layer), stem: stem! };
}

const STEMS: Readonly<Record<string, string>> = {
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

async function safetensorsWeights(files: readonly Source[], signal?: AbortSignal): Promise<Weights[]> {
  const options = signal ? { signal } : {};
  const all: Weights[] = [];
  for (const source of files) {
    const start = await source.read(0, Math.min(9, source.size), options);
    if (start[8] !== 0x7b) {
      const reason = `${source.name}: this is neither GGUF nor safetensors`;
      const found = Array.from(start.subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
      const expected = "GGUF, or a length and {";
      throw new EngineError("BadMagic", reason, { file: source.name, offset: 0, expected, found });
    }
    const length = Number(new DataView(start.buffer, start.byteOffset).getBigUint64(0, true));
    if (length > Math.min(source.size - 8, HEADER_BYTES)) {
      const code = length > HEADER_BYTES ? "BadHeader" : "Truncated";
      const expected = `at most ${Math.min(source.size - 8, HEADER_BYTES)} bytes`;
      const detail = { file: source.name, offset: 0, expected, found: `${length} bytes` };
      throw new EngineError(code, `${source.name}: a header of ${length} bytes, in a file of ${source.size}`, detail);
    }
    const header = parsed(await source.read(8, length, options), source.name) as Record<string, Entry>;
    const entries = Object.entries<Entry>(header).filter(([name]) => name !== "__metadata__");
    const scales = new Map(entries.filter(([name]) => name.endsWith(".weight_scale")));
    for (const [name, entry] of entries) {
      if (scales.has(name)) continue;
      const { dtype, shape, data_offsets } = entry;
      checkEntry(source.name, name, entry, source.size - 8 - length);
      const [from, to] = data_offsets;
      const beside = scales.get(name.replace(/\.weight$/, ".weight_scale"));
      const scale = beside && (await scalar(source, beside, 8 + length, options));
      const packed = dtype === "U8" && scale !== undefined;
      all.push({
        name,
        ...hfPlace(name),
        type: packed ? "U8x4" : dtype,
        dims: (packed ? [4 * shape[0]!, ...shape.slice(1)] : [...shape]).reverse(),
        ...(scale === undefined ? {} : { scale }),
        stream: (signal) => source.stream(8 + length + from, to - from, signal ? { signal } : {}),
      });
    }
  }
  return all;
}

function checkEntry(file: string, name: string, { dtype, shape, data_offsets }: Entry, room: number): void {
  const [from = -1, to = -1] = Array.isArray(data_offsets) ? data_offsets : [];
  const fine = typeof dtype === "string" && Array.isArray(shape) && from >= 0 && to >= from;
  if (fine && to <= room) return;
  const found = `${from} to ${to}`;
  throw new EngineError(
    fine ? "Truncated" : "BadHeader",
    `${name}: expected a range within ${room} bytes, got ${found}`,
    {
      file,
      tensor: name,
      expected: `at most ${room}`,
      found,
    },
  );
}

function parsed(bytes: Uint8Array, file: string): unknown {
  try {
    return Object(JSON.parse(new TextDecoder().decode(bytes)));
  } catch (cause) {
    throw new EngineError("BadHeader", `${file} is not JSON: ${(cause as Error).message}`, { file }, { cause });
  }
}

function hfPlace(name: string): Pick<Weights, "layer" | "stem"> {
  const [, layer, module, rest] = /layers\.(\d+)\.(.*)(\.[^.]+)$/.exec(name) ?? [];
  if (layer === undefined) return { layer: null, stem: name };
  return { layer: Number(layer), stem: `${STEMS[module!] ?? module}${rest}` };
}

async function scalar(
  source: Source,
  { dtype, data_offsets: [from, to] }: Entry,
  data: number,
  options: { signal?: AbortSignal },
): Promise<number | undefined> {
  const dense = DENSE[dtype];
  if (!dense || to - from !== dense.bytes) return undefined;
  const bytes = await source.read(data + from, to - from, options);
  return dense.at(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), 0);
}
