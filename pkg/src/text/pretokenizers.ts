/** How byte-level vocabularies cut a text before merging: what the names in `tokenizer.ggml.pre` stand for. */

export interface PreTokenizer {
  /** The name we write first, then those that mean the same. */
  names: readonly string[];
  /** Patterns applied one after the other; each isolates its matches within the pieces so far. */
  splits: readonly string[];
  /** A whole piece that is itself a token is taken as it is. */
  ignoreMerges: boolean;
  /** Whether BOS is added where the file does not say. */
  addBos: boolean;
  /** GGUF cannot say it, but the tokenizers behind these names compose Unicode (NFC) first. */
  nfc: boolean;
}

/** English contractions, words, numbers, symbols, newlines, spaces; only the number part and marks differ by model. */
const words = (number: string, letter = "\\p{L}", noLetter = "\\p{L}") =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?${letter}+|${number}| ?[^\\s${noLetter}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

const LLAMA3 = words("\\p{N}{1,3}");
const QWEN2 = words("\\p{N}");
const QWEN35 = words("\\p{N}", "[\\p{L}\\p{M}]", "\\p{L}\\p{M}");

export const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const plain = { ignoreMerges: false, addBos: false, nfc: false };

export const PRE_TOKENIZERS: readonly PreTokenizer[] = [
  {
    ...plain,
    names: [
      "llama-bpe",
      "llama3",
      "llama-v3",
      "falcon3",
      "falcon_e",
      "falcon-h1",
      "pixtral",
      "midm-2.0",
      "lfm2",
      "jina-v5-nano",
    ],
    splits: [LLAMA3],
    ignoreMerges: true,
    addBos: true,
  },
  { ...plain, names: ["smaug-bpe", "dbrx", "chatglm-bpe", "glm4"], splits: [LLAMA3] },
  { ...plain, names: ["qwen2", "deepseek-r1-qwen", "f2llmv2", "kormo", "megrez"], splits: [QWEN2], nfc: true },
  { ...plain, names: ["stablelm2", "hunyuan", "solar-open", "grok-2"], splits: [QWEN2] },
  { ...plain, names: ["qwen35"], splits: [QWEN35], nfc: true },
  {
    ...plain,
    names: ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
    splits: ["\\p{N}", GPT2],
  },
  {
    ...plain,
    names: ["gpt-2", "phi-2", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0", "mellum"],
    splits: [GPT2],
  },
  // GPT-NeoX's tokenizer, which TriLM has too.
  { ...plain, names: ["olmo", "mpt"], splits: [GPT2], nfc: true },
  { ...plain, names: ["falcon"], splits: ["[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"] },
  { ...plain, names: ["default"], splits: ["[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"] },
];

export function findPreTokenizer(name: string): PreTokenizer | undefined {
  return PRE_TOKENIZERS.find((one) => one.names.includes(name));
}
