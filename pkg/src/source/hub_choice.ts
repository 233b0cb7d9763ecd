/** Which of a repository's files make up the model that is meant. */

import { EngineError } from "../types/errors.ts";
import type { HubName } from "./hub_name.ts";
import { INDEX, partsOf, SINGLE } from "./shards.ts";

export interface Choice {
  /** Paths in the repository. */
  files: string[];
  /** Other models that it has. */
  other: string[];
  /** The choice in words. */
  told: string;
}

/** Storage types as names of files have them: those of 1-bit and ternary weights first, best first. */
const SMALL = ["i2_s", "tq2_0", "tq1_0", "ptq1_0", "pq2_0", "q1_0", "q2_0"];
/** Then dense ones, smaller ones that keep most first. */
const DENSE = ["q4_k_m", "q4_k_s", "q4_k", "q4_0", "q4_1", "q5_k_m", "q5_k", "q5_0", "q6_k", "q8_0", "q3_k_m", "q2_k"];
const WHOLE = ["bf16", "f16", "fp16", "f32", "fp32"];
const ORDER = [...SMALL, ...DENSE, ...WHOLE];

/**
 * GGUF files that are no language model by themselves, most of which lie beside one: what sees pictures, measured weights, and models
 * that only guess for another (`Bonsai-27B-dspark-Q4_1.gguf`, `mtp-Qwen3.6-27B-Q8_0.gguf`).
 */
const NO_MODEL = /(^|[-_.])(mmproj|imatrix|vocab)([-_.]|$)|^(mtp|dspark|dflash)-|-dspark(-dflash)?-[a-z]+\d\w*\.gguf$/i;
/** What a folder of safetensors needs beside its weights. */
const SIDE = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "chat_template.jinja",
];
const ADAPTER = ["adapter_config.json", "adapter_model.safetensors"];

/** @param names of the files in the folder that is named */
export function chosen({ name, repo, path }: HubName, names: readonly string[]): Choice {
  const own = names.map((one) => one.slice(path.length));
  const here = own.filter((one) => !one.includes("/"));
  const ggufs = models(here, own);
  const [first] = ggufs;
  if (first) {
    const other = ggufs.slice(1).map((parts) => parts[0]!);
    const told = `${name}: ${first[0]} was taken of ${ggufs.length} models; another one is hf:${repo}/FILE`;
    return { files: [path + first[0]], other, told };
  }
  const weights = here.filter((file) => /\.safetensors$/i.test(file));
  if (weights.length === 0) {
    const reason = `${name}: there is no GGUF file and no safetensors among the ${names.length} files of ${repo}`;
    throw new EngineError("NotFound", reason, { option: "source", file: name });
  }
  const shards = here.includes(INDEX) && !here.includes(SINGLE) ? weights.filter((file) => file !== SINGLE) : [];
  const main = here.includes(SINGLE) ? [SINGLE] : here.includes(INDEX) ? [INDEX, ...shards] : weights;
  const beside = [...SIDE, ...ADAPTER].filter((file) => here.includes(file) && !main.includes(file));
  return { files: [...main, ...beside].map((file) => path + file), other: [], told: "" };
}

/** The GGUF models, the best first, each as its parts: those that lie here, else those in folders. */
function models(here: readonly string[], all: readonly string[]): string[][] {
  const ggufs = (names: readonly string[]) =>
    names.filter((name) => /\.gguf$/i.test(name) && !NO_MODEL.test(base(name)));
  const found = ggufs(here).length > 0 ? ggufs(here) : ggufs(all);
  const byFirst = new Map(found.map((name) => partsOf(name)).map((parts) => [parts[0]!, parts]));
  const rank = ([first]: readonly string[]) => rankOf(base(first!));
  return [...byFirst.values()].sort((a, b) => rank(a) - rank(b) || (a[0]! < b[0]! ? -1 : 1));
}

const base = (path: string) => path.replace(/^.*\//, "");

function rankOf(name: string): number {
  const at = ORDER.findIndex((type) => new RegExp(`(^|[^a-z0-9])${type}([^a-z0-9]|$)`, "i").test(name));
  return at < 0 ? ORDER.length : at;
}
