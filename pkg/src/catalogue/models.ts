/**
 * The public 1-bit and ternary models: one list for the command `models`, for the documents and for their tests. Nothing stands here
 * without a source; what no source tells is null. Long because it is a table.
 */

import type { Shape } from "../bench/shapes.ts";

export interface CatalogueModel {
  name: string;
  /** The file or folder, as `load` takes it. */
  file: string;
  /** As GGUF's architecture and storage types are called in the documents. */
  kind: string;
  /** As its publisher rounds it. */
  parameters: number | null;
  /** Of the file, or of a folder's weights. */
  bytes: number | null;
  /** Where the source of `bytes` shows three digits alone. */
  rounded?: true;
  /** SPDX's name, or the publisher's. */
  license: string | null;
  /** How a chat is written; `load` takes the file's own template in any case. "none" is a model that was not trained to chat. */
  template: string | null;
  /** Positions that it was trained for. */
  context: number | null;
  /** Sampling options that its publisher runs it with. */
  settings: Readonly<Record<string, number>> | null;
  /** What the planned memory follows from, with the storage types in `bench`'s words. */
  shape: (Shape & { type: string; embedding: string }) | null;
  /** Where each fact that is not null was found. */
  sources: Readonly<Partial<Record<Fact, string>>>;
}

export type Fact = "file" | "parameters" | "bytes" | "license" | "template" | "context" | "settings" | "shape";

const HUB = "https://huggingface.co";
/**
 * The page of a file, which shows its size. To the byte, sizes were read in public programs that download these files; each agrees with
 * what its shape and storage types come to and a tokenizer, which a test checks.
 */
const pageOf = (repo: string, file: string) => `${HUB}/${repo}/blob/main/${file}`;

const nothing = { parameters: null, bytes: null, license: null, template: null, context: null, settings: null };

const qwen17 = { arch: "qwen3", hidden: 2048, layers: 28, heads: 16, kv: 8, head: 128, ffn: 6144 };
const qwen4 = { arch: "qwen3", hidden: 2560, layers: 36, heads: 32, kv: 8, head: 128, ffn: 9728 };
const qwen8 = { arch: "qwen3", hidden: 4096, layers: 36, heads: 32, kv: 8, head: 128, ffn: 12288 };
const QWEN4_CONFIG = `${HUB}/Qwen/Qwen3-4B/blob/main/config.json`;
const QWEN8_CONFIG = `${HUB}/Qwen/Qwen3-8B/blob/main/config.json`;
/** What Prism ML's own launcher gives to models of 27B, and to smaller ones. */
const PRISM = "https://github.com/PrismML-Eng/Bonsai-demo/blob/main";
const launched = { temperature: 0.5, topK: 20, topP: 0.85, minP: 0 };
const launched27 = { temperature: 0.7, topK: 20, topP: 0.95, minP: 0 };
const oneBit = { vocab: 151669, type: "q1_0", embedding: "q1_0" };
const twoBit = { vocab: 151669, type: "q2_0", embedding: "q2_0" };

/** What the cards and the launcher of Prism ML's models tell. */
const bonsai = (repo: string, file: string) => {
  const card = `${HUB}/prism-ml/${repo}`;
  const bytes = pageOf(`prism-ml/${repo}`, file);
  return {
    file: card,
    parameters: card,
    bytes,
    license: card,
    context: card,
    settings: `${PRISM}/scripts/run_llama.sh`,
  };
};
/** Models of 27B keep the sizes of the ones that they were made from. */
const QWEN27_CONFIG = `${HUB}/Qwen/Qwen3.6-27B/blob/main/config.json`;
const hybrid = { arch: "qwen35", head: 256, interval: 4, kheads: 16, state: 128 };
const qwen27 = {
  ...hybrid,
  hidden: 5120,
  layers: 64,
  heads: 24,
  kv: 4,
  ffn: 17408,
  vheads: 48,
  vocab: 248320,
  tied: 0,
};
const bonsai27Sources = (repo: string, file: string) => {
  const guide = `${PRISM}/Bonsai1_README.md`;
  const { bytes, settings } = bonsai(repo, file);
  return { file: guide, parameters: guide, bytes, context: guide, settings, shape: QWEN27_CONFIG };
};
const bonsai2Sources = (file: string) => {
  const card = `${HUB}/prism-ml/Ternary-Bonsai-2-27B-gguf`;
  const bytes = pageOf("prism-ml/Ternary-Bonsai-2-27B-gguf", file);
  return { file: card, parameters: card, bytes, shape: QWEN27_CONFIG };
};

const falcon3 = { arch: "llama", kv: 4, head: 256, vocab: 131072, tied: 0, type: "i2_s", embedding: "f16" };
const FALCON3_CHAT = "<|system|>, <|user|>, <|assistant|>";
const FALCON3_TEMPLATE = `${HUB}/bartowski/Falcon3-1B-Instruct-GGUF`;
const falcon3Sources = (size: string) => {
  const repo = `tiiuae/Falcon3-${size}-Instruct-1.58bit-GGUF`;
  const card = `${HUB}/${repo}`;
  const bytes = pageOf(repo, "ggml-model-i2_s.gguf");
  return { file: card, parameters: card, bytes, license: `${card}/tree/main`, template: FALCON3_TEMPLATE };
};
/** Of the model that was made ternary. */
const falcon3Card = (size: string) => `${HUB}/tiiuae/Falcon3-${size}-Instruct`;
const falconE = (repo: string) => {
  const card = `${HUB}/tiiuae/${repo}`;
  return { file: card, parameters: card };
};

const bitnet = {
  arch: "bitnet-b1.58",
  hidden: 2560,
  layers: 30,
  heads: 20,
  kv: 5,
  head: 128,
  ffn: 6912,
  vocab: 128256,
};
const BITNET = `${HUB}/microsoft/bitnet-b1.58-2B-4T`;
const BITNET_CHAT = "Role: text<|eot_id|>";
const PROMPT_LAYER = "https://promptlayer.com/models/bitnetb158-3b-a011";
const SPECTRA = "https://github.com/NolanoOrg/SpectraSuite";

export const models: readonly CatalogueModel[] = [
  {
    name: "Bonsai 1.7B",
    file: "hf:prism-ml/Bonsai-1.7B-gguf/Bonsai-1.7B-Q1_0.gguf",
    kind: "Qwen3, Q1_0",
    parameters: 1_700_000_000,
    bytes: 248_302_272,
    license: "Apache-2.0",
    template: null,
    context: 32768,
    settings: launched,
    shape: { ...qwen17, ...oneBit, tied: 1 },
    sources: {
      ...bonsai("Bonsai-1.7B-gguf", "Bonsai-1.7B-Q1_0.gguf"),
      shape: `${HUB}/prism-ml/Bonsai-1.7B-gguf`,
    },
  },
  {
    name: "Bonsai 4B",
    file: "hf:prism-ml/Bonsai-4B-gguf/Bonsai-4B-Q1_0.gguf",
    kind: "Qwen3, Q1_0",
    parameters: 4_000_000_000,
    bytes: 572_270_624,
    license: "Apache-2.0",
    template: "ChatML",
    context: 32768,
    settings: launched,
    shape: { ...qwen4, ...oneBit, tied: 1 },
    sources: {
      ...bonsai("Bonsai-4B-gguf", "Bonsai-4B-Q1_0.gguf"),
      template: `${HUB}/welcoma/Bonsai-4B-bonsai_q1_f32-MLC`,
      shape: QWEN4_CONFIG,
    },
  },
  {
    name: "Bonsai 8B",
    file: "hf:prism-ml/Bonsai-8B-gguf/Bonsai-8B-Q1_0.gguf",
    kind: "Qwen3, Q1_0",
    parameters: 8_190_000_000,
    bytes: 1_158_654_496,
    license: "Apache-2.0",
    template: null,
    context: 65536,
    settings: launched,
    shape: { ...qwen8, ...oneBit, tied: 0 },
    sources: {
      ...bonsai("Bonsai-8B-gguf", "Bonsai-8B-Q1_0.gguf"),
      shape: QWEN8_CONFIG,
    },
  },
  {
    name: "Ternary-Bonsai 1.7B",
    file: "hf:prism-ml/Ternary-Bonsai-1.7B-gguf/Ternary-Bonsai-1.7B-Q2_0_g64.gguf",
    kind: "Qwen3, Q2_0",
    parameters: 1_720_000_000,
    bytes: 490_163_968,
    license: "Apache-2.0",
    template: null,
    context: 32768,
    settings: launched,
    shape: { ...qwen17, ...twoBit, tied: 1 },
    sources: {
      ...bonsai("Ternary-Bonsai-1.7B-gguf", "Ternary-Bonsai-1.7B-Q2_0_g64.gguf"),
      shape: `${HUB}/prism-ml/Bonsai-1.7B-gguf`,
    },
  },
  {
    name: "Ternary-Bonsai 4B",
    file: "hf:prism-ml/Ternary-Bonsai-4B-gguf/Ternary-Bonsai-4B-Q2_0_g64.gguf",
    kind: "Qwen3, Q2_0",
    parameters: 4_000_000_000,
    bytes: 1_137_806_656,
    license: "Apache-2.0",
    template: "ChatML",
    context: 32768,
    settings: launched,
    shape: { ...qwen4, ...twoBit, tied: 1 },
    sources: {
      ...bonsai("Ternary-Bonsai-4B-gguf", "Ternary-Bonsai-4B-Q2_0_g64.gguf"),
      template: "https://ollama.com/MichelRosselli/ternary-bonsai:4b-f16/blobs/68201b185f80",
      shape: QWEN4_CONFIG,
    },
  },
  {
    name: "Ternary-Bonsai 8B",
    file: "hf:prism-ml/Ternary-Bonsai-8B-gguf/Ternary-Bonsai-8B-Q2_0_g64.gguf",
    kind: "Qwen3, Q2_0",
    parameters: 8_190_000_000,
    bytes: 2_310_125_920,
    license: "Apache-2.0",
    template: null,
    context: 65536,
    settings: launched,
    shape: { ...qwen8, ...twoBit, tied: 0 },
    sources: {
      ...bonsai("Ternary-Bonsai-8B-gguf", "Ternary-Bonsai-8B-Q2_0_g64.gguf"),
      shape: QWEN8_CONFIG,
    },
  },
  {
    ...nothing,
    name: "Bonsai 27B",
    file: "hf:prism-ml/Bonsai-27B-gguf/Bonsai-27B-Q1_0.gguf",
    kind: "Qwen3.5, Q1_0",
    parameters: 27_000_000_000,
    bytes: 3_803_452_480,
    context: 262144,
    settings: launched27,
    shape: { ...qwen27, type: "q1_0,ssm_alpha=q1_0,ssm_beta=q1_0", embedding: "q1_0" },
    sources: bonsai27Sources("Bonsai-27B-gguf", "Bonsai-27B-Q1_0.gguf"),
  },
  {
    ...nothing,
    name: "Ternary-Bonsai 27B",
    file: "hf:prism-ml/Ternary-Bonsai-27B-gguf/Ternary-Bonsai-27B-Q2_g64.gguf",
    kind: "Qwen3.5, Q2_0",
    parameters: 27_000_000_000,
    bytes: 7_585_330_240,
    context: 262144,
    settings: launched27,
    shape: { ...qwen27, type: "q2_0,ssm_alpha=q2_0,ssm_beta=q2_0", embedding: "q2_0" },
    sources: bonsai27Sources("Ternary-Bonsai-27B-gguf", "Ternary-Bonsai-27B-Q2_g64.gguf"),
  },
  {
    ...nothing,
    name: "Ternary-Bonsai 2 27B, PQ2_0",
    file: "hf:prism-ml/Ternary-Bonsai-2-27B-gguf/Ternary-Bonsai-2-27B-PQ2_0.gguf",
    kind: "Qwen3.5, PQ2_0, rotated",
    parameters: 27_000_000_000,
    bytes: 7_206_168_928,
    shape: { ...qwen27, type: "pq2_0", embedding: "pq2_0" },
    sources: bonsai2Sources("Ternary-Bonsai-2-27B-PQ2_0.gguf"),
  },
  {
    ...nothing,
    name: "Ternary-Bonsai 2 27B, PTQ1_0",
    file: "hf:prism-ml/Ternary-Bonsai-2-27B-gguf/Ternary-Bonsai-2-27B-PTQ1_0.gguf",
    kind: "Qwen3.5, PTQ1_0, rotated",
    parameters: 27_000_000_000,
    bytes: 5_946_648_928,
    shape: { ...qwen27, type: "ptq1_0", embedding: "ptq1_0" },
    sources: bonsai2Sources("Ternary-Bonsai-2-27B-PTQ1_0.gguf"),
  },
  {
    name: "BitNet b1.58 2B-4T",
    file: "hf:microsoft/bitnet-b1.58-2B-4T-gguf/ggml-model-i2_s.gguf",
    kind: "BitNet, I2_S, F16 embedding",
    parameters: 2_000_000_000,
    bytes: 1_187_801_280,
    license: "MIT",
    template: BITNET_CHAT,
    context: 4096,
    settings: null,
    shape: { ...bitnet, tied: 1, type: "i2_s", embedding: "f16" },
    sources: {
      file: `${HUB}/microsoft/bitnet-b1.58-2B-4T-gguf`,
      parameters: `${HUB}/microsoft/bitnet-b1.58-2B-4T-gguf`,
      bytes: pageOf("microsoft/bitnet-b1.58-2B-4T-gguf", "ggml-model-i2_s.gguf"),
      license: `${HUB}/microsoft/bitnet-b1.58-2B-4T-gguf`,
      template: `${BITNET}/blob/main/tokenizer_config.json`,
      context: `${HUB}/microsoft/bitnet-b1.58-2B-4T-gguf`,
      shape: `${BITNET}/blob/main/config.json`,
    },
  },
  {
    name: "BitNet b1.58 2B-4T, as a folder",
    file: "hf:microsoft/bitnet-b1.58-2B-4T",
    kind: "BitNet, packed U8, bf16 embedding",
    parameters: 2_000_000_000,
    bytes: null,
    license: "MIT",
    template: BITNET_CHAT,
    context: 4096,
    settings: null,
    shape: { ...bitnet, tied: 1, type: "i2_s", embedding: "bf16" },
    sources: {
      file: `${BITNET}/tree/main`,
      parameters: `${HUB}/microsoft/bitnet-b1.58-2B-4T-gguf`,
      license: `${BITNET}/blob/main/LICENSE`,
      template: `${BITNET}/blob/main/tokenizer_config.json`,
      context: `${BITNET}/blob/main/config.json`,
      shape: `${BITNET}/blob/main/config.json`,
    },
  },
  {
    ...nothing,
    name: "Falcon-E 1B Base",
    file: "hf:tiiuae/Falcon-E-1B-Base",
    kind: "Llama, packed U8",
    parameters: 1_000_000_000,
    shape: null,
    sources: falconE("Falcon-E-1B-Base"),
  },
  {
    ...nothing,
    name: "Falcon-E 1B Instruct",
    file: "hf:tiiuae/Falcon-E-1B-Instruct-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 1_000_000_000,
    bytes: 666_324_256,
    license: "falcon-llm-license",
    shape: null,
    sources: {
      ...falconE("Falcon-E-1B-Instruct-GGUF"),
      bytes: pageOf("tiiuae/Falcon-E-1B-Instruct-GGUF", "ggml-model-i2_s.gguf"),
      license: `${HUB}/tiiuae/Falcon-E-1B-Instruct-GGUF`,
    },
  },
  {
    ...nothing,
    name: "Falcon-E 3B Base",
    file: "hf:tiiuae/Falcon-E-3B-Base",
    kind: "Llama, packed U8",
    parameters: 3_000_000_000,
    license: "falcon-llm-license",
    shape: null,
    sources: { ...falconE("Falcon-E-3B-Base"), license: `${HUB}/tiiuae/Falcon-E-3B-Base` },
  },
  {
    ...nothing,
    name: "Falcon-E 3B Instruct",
    file: "hf:tiiuae/Falcon-E-3B-Instruct-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 3_000_000_000,
    bytes: 999_908_608,
    license: "falcon-llm-license",
    shape: null,
    sources: {
      ...falconE("Falcon-E-3B-Instruct-GGUF"),
      bytes: pageOf("tiiuae/Falcon-E-3B-Instruct-GGUF", "ggml-model-i2_s.gguf"),
      license: `${HUB}/tiiuae/Falcon-E-3B-Instruct-GGUF`,
    },
  },
  {
    name: "Falcon3 1B Instruct 1.58bit",
    file: "hf:tiiuae/Falcon3-1B-Instruct-1.58bit-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 1_000_000_000,
    bytes: 1_361_904_672,
    license: "falcon-llm-license",
    template: FALCON3_CHAT,
    context: 8192,
    settings: null,
    shape: { ...falcon3, hidden: 2048, layers: 18, heads: 8, ffn: 8192 },
    sources: {
      ...falcon3Sources("1B"),
      context: `${HUB}/tiiuae/Falcon3-1B-Instruct-1.58bit/blob/main/config.json`,
      shape: `${HUB}/tiiuae/Falcon3-1B-Instruct-1.58bit/blob/main/config.json`,
    },
  },
  {
    name: "Falcon3 3B Instruct 1.58bit",
    file: "hf:tiiuae/Falcon3-3B-Instruct-1.58bit-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 3_000_000_000,
    bytes: 2_221_465_632,
    license: "falcon-llm-license",
    template: FALCON3_CHAT,
    context: 32768,
    settings: null,
    shape: { ...falcon3, hidden: 3072, layers: 22, heads: 12, ffn: 9216 },
    sources: {
      context: falcon3Card("3B"),
      ...falcon3Sources("3B"),
      shape: `${HUB}/tiiuae/Falcon3-3B-Instruct/blob/main/config.json`,
    },
  },
  {
    name: "Falcon3 7B Instruct 1.58bit",
    file: "hf:tiiuae/Falcon3-7B-Instruct-1.58bit-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 7_000_000_000,
    bytes: 3_278_680_768,
    license: "falcon-llm-license",
    template: FALCON3_CHAT,
    context: 32768,
    settings: null,
    shape: { ...falcon3, hidden: 3072, layers: 28, heads: 12, ffn: 23040 },
    sources: {
      context: falcon3Card("7B"),
      ...falcon3Sources("7B"),
      shape: `${HUB}/tiiuae/Falcon3-7B-Instruct/blob/main/config.json`,
    },
  },
  {
    name: "Falcon3 10B Instruct 1.58bit",
    file: "hf:tiiuae/Falcon3-10B-Instruct-1.58bit-GGUF/ggml-model-i2_s.gguf",
    kind: "Llama, I2_S",
    parameters: 10_000_000_000,
    bytes: 3_991_393_696,
    license: "falcon-llm-license",
    template: FALCON3_CHAT,
    context: 32768,
    settings: null,
    shape: { ...falcon3, hidden: 3072, layers: 40, heads: 12, ffn: 23040 },
    sources: {
      context: falcon3Card("10B"),
      ...falcon3Sources("10B"),
      shape: `${HUB}/tiiuae/Falcon3-10B-Base-1.58bit/blob/main/config.json`,
    },
  },
  {
    ...nothing,
    name: "Llama 3 8B 1.58 (HF1BitLLM), as GGUF",
    file: "hf:brunopio/Llama3-8B-1.58-100B-tokens-GGUF/Llama3-8B-1.58-100B-tokens-TQ2_0.gguf",
    kind: "Llama, TQ2_0",
    parameters: 8_000_000_000,
    bytes: 2_530_000_000,
    rounded: true,
    context: 8192,
    shape: {
      ...{ arch: "llama", hidden: 4096, layers: 32, heads: 32, kv: 8, head: 128, ffn: 14336, vocab: 128256, tied: 0 },
      ...{ type: "tq2_0,token_embd=q4_k", embedding: "q6_k" },
    },
    sources: {
      file: `${HUB}/brunopio/Llama3-8B-1.58-100B-tokens-GGUF/tree/main`,
      parameters: `${HUB}/brunopio/Llama3-8B-1.58-100B-tokens-GGUF`,
      bytes: `${HUB}/brunopio/Llama3-8B-1.58-100B-tokens-GGUF/tree/main`,
      context: `${HUB}/HF1BitLLM/Llama3-8B-1.58-Sigmoid-k100-10B-tokens/blob/main/config.json`,
      shape: `${HUB}/HF1BitLLM/Llama3-8B-1.58-Sigmoid-k100-10B-tokens/blob/main/config.json`,
    },
  },
  {
    ...nothing,
    name: "TriLM 3.9B, as GGUF",
    file: "hf:Green-Sky/TriLM_3.9B-GGUF/TriLM_3.9B_Unpacked-4.0B-TQ2_0.gguf",
    kind: "Llama, TQ2_0",
    parameters: 3_900_000_000,
    bytes: 1_170_000_000,
    rounded: true,
    license: "Apache-2.0",
    template: "none",
    shape: {
      ...{ arch: "llama", hidden: 3072, layers: 30, heads: 24, kv: 24, head: 128, ffn: 9216, vocab: 50688, tied: 0 },
      ...{ type: "tq2_0,token_embd=q4_k", embedding: "q6_k" },
    },
    sources: {
      file: `${HUB}/Green-Sky/TriLM_3.9B-GGUF/tree/main`,
      parameters: SPECTRA,
      bytes: `${HUB}/Green-Sky/TriLM_3.9B-GGUF/tree/main`,
      license: `${HUB}/Green-Sky/TriLM_3.9B-GGUF/tree/main`,
      template: SPECTRA,
      shape: `${HUB}/HOLOGRAMTECH/q-trilm-3.9b`,
    },
  },
  {
    ...nothing,
    name: "TriLM 99M",
    file: "hf:SpectraSuite/TriLM_99M_Unpacked",
    kind: "Llama, F16 that is ternary",
    parameters: 99_000_000,
    bytes: 200_000_000,
    rounded: true,
    license: "Apache-2.0",
    template: "none",
    context: 2048,
    shape: {
      ...{ arch: "llama", hidden: 512, layers: 16, heads: 8, kv: 8, head: 64, ffn: 1280, vocab: 50304, tied: 0 },
      ...{ type: "f16", embedding: "f16" },
    },
    sources: {
      file: `${HUB}/SpectraSuite/TriLM_99M_Unpacked/tree/main`,
      parameters: SPECTRA,
      bytes: `${HUB}/SpectraSuite/TriLM_99M_Unpacked/tree/main`,
      license: `${HUB}/SpectraSuite/TriLM_99M_Unpacked/tree/main`,
      template: SPECTRA,
      context: `${HUB}/brunopio/TriLM_99M_Unpacked-nbits4-GS64-Axis1-HQQ-T/blob/main/config.json`,
      shape: `${HUB}/brunopio/TriLM_99M_Unpacked-nbits4-GS64-Axis1-HQQ-T/blob/main/config.json`,
    },
  },
  {
    ...nothing,
    name: "bitnet_b1_58-large",
    file: "hf:1bitLLM/bitnet_b1_58-large",
    kind: "BitNet (SiLU), masters",
    bytes: 2_920_000_000,
    rounded: true,
    license: "MIT",
    context: 2048,
    shape: {
      ...{ arch: "bitnet", hidden: 1536, layers: 24, heads: 16, kv: 16, head: 96, ffn: 4096, vocab: 32002, tied: 1 },
      ...{ type: "i2_s", embedding: "f32" },
    },
    sources: {
      file: `${HUB}/1bitLLM/bitnet_b1_58-large/tree/main`,
      bytes: `${HUB}/1bitLLM/bitnet_b1_58-large/tree/main`,
      license: `${HUB}/1bitLLM/bitnet_b1_58-large/tree/main`,
      context: `${HUB}/1bitLLM/bitnet_b1_58-large/blob/main/config.json`,
      shape: `${HUB}/1bitLLM/bitnet_b1_58-large/blob/main/config.json`,
    },
  },
  {
    ...nothing,
    name: "bitnet_b1_58-3B",
    file: "hf:1bitLLM/bitnet_b1_58-3B",
    kind: "BitNet (SiLU), masters",
    parameters: 3_320_000_000,
    license: "MIT",
    context: 2048,
    shape: null,
    sources: {
      file: `${HUB}/1bitLLM/bitnet_b1_58-3B/tree/main`,
      parameters: PROMPT_LAYER,
      license: PROMPT_LAYER,
      context: PROMPT_LAYER,
    },
  },
];

/** Settings in words: `temperature 0.5, topK 20`. */
export const settingsText = ({ settings }: CatalogueModel): string =>
  Object.entries(settings ?? {})
    .map(([option, value]) => `${option} ${value}`)
    .join(", ");
