/** Makes the metadata of tokenizer and template from the files beside safetensors. */

import type { SideFiles } from "../source/files.ts";
import { findTemplate } from "../text/template_source.ts";
import { type GgufEntry, toGguf } from "../text/to_gguf.ts";
import type { TokenizerConfig, TokenizerJson } from "../text/tokenizer_json.ts";

export interface TextEntries {
  entries: GgufEntry[];
  warnings: string[];
}

/** @param rows of the embedding: ids that the tokenizer lacks are written as unused */
export function textEntries(files: SideFiles, rows: number): TextEntries {
  const json = files.tokenizer as TokenizerJson | null;
  const config = files.tokenizerConfig as TokenizerConfig | null;
  if (!json) {
    return { entries: [], warnings: ["the source has no tokenizer.json: the new file has no tokenizer either"] };
  }
  const { default: template = null, tool_use: tool } =
    findTemplate({ file: files.chatTemplate, config })?.templates ?? {};
  const entries = toGguf(json, config, { vocab: rows, template });
  if (tool) entries.push({ key: "tokenizer.chat_template.tool_use", value: tool });
  const warnings: string[] = [];
  const tokens = entries.find(({ key }) => key === "tokenizer.ggml.tokens")?.value as readonly string[];
  if (tokens.length > rows) {
    warnings.push(`the tokenizer has ${tokens.length} ids, the embedding ${rows} rows: llama.cpp refuses such a file`);
  }
  addEnds(entries, files, tokens, warnings);
  return { entries, warnings };
}

/** GGUF has room for one token that ends a text and one that ends a turn; a generation_config may list more. */
function addEnds(entries: GgufEntry[], files: SideFiles, tokens: readonly string[], warnings: string[]): void {
  const value = (name: string) => entries.find(({ key }) => key === `tokenizer.ggml.${name}_token_id`)?.value;
  const listed = (files.generationConfig as { eos_token_id?: unknown } | null)?.eos_token_id;
  const ids = [listed].flat().filter((id): id is number => Number.isInteger(id) && (id as number) in tokens);
  for (const id of new Set(ids)) {
    if (id === value("eos") || id === value("eot")) continue;
    const name = value("eos") === undefined ? "eos" : value("eot") === undefined ? "eot" : null;
    if (name) entries.push({ key: `tokenizer.ggml.${name}_token_id`, value: id });
    else warnings.push(`generation_config.json ends at ${tokens[id]} (${id}) too, which GGUF has no key for`);
  }
}
