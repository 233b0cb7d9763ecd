/** The text part of a model: its tokenizer and its chat template, from the files beside it or from its header. */

import { type ModelDefault, modelDefaults } from "../options/routes.ts";
import type { ModelFiles, SideFiles } from "../source/files.ts";
import { fromGguf } from "../text/from_gguf.ts";
import type { GgufArray, GgufText } from "../text/gguf.ts";
import { type ChatTemplate, missingTemplate, pickTemplate } from "../text/template.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import type { TokenizerConfig, TokenizerJson } from "../text/tokenizer_json.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, SamplingOptions } from "../types/index.ts";

export class Text {
  readonly #tokenizer: Tokenizer | null;
  readonly #template: ChatTemplate | null;
  /** The sampling values of the model's own configuration. */
  readonly sampling: SamplingOptions;
  /** The ids that end an answer. */
  readonly ends: readonly number[];
  readonly warnings: readonly string[];

  constructor(tokenizer: Tokenizer | null, template: ChatTemplate | null, generation: GenerationConfig) {
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.sampling = generation.sampling;
    this.ends = [...new Set([...(tokenizer?.ends.map((end) => end.id) ?? []), ...generation.ends])];
    this.warnings = [
      ...(tokenizer?.warnings ?? ["the model has no tokenizer: prompts must be token ids"]),
      ...(template?.warnings ?? []),
    ];
  }

  get tokenizerOrNull(): Tokenizer | null {
    return this.#tokenizer;
  }

  get tokenizer(): Tokenizer {
    if (this.#tokenizer) return this.#tokenizer;
    throw new EngineError(
      "MissingTokenizer",
      "this model has no tokenizer: give token ids, or load its folder with tokenizer.json",
      {
        file: "tokenizer.json",
      },
    );
  }

  get templateOrNull(): ChatTemplate | null {
    return this.#template;
  }

  get template(): ChatTemplate {
    if (!this.#template) throw missingTemplate();
    return this.#template;
  }

  describe(): Pick<Description, "tokenizer" | "template"> {
    const tokenizer = this.#tokenizer;
    const template = this.#template;
    return {
      tokenizer: tokenizer && {
        kind: tokenizer.kind,
        vocab: tokenizer.vocab,
        bos: tokenizer.bos?.text ?? null,
        eos: tokenizer.ends.map((end) => end.text),
        addBos: tokenizer.addsBos,
      },
      template: template && { source: template.source, length: template.length },
    };
  }
}

interface GenerationConfig {
  sampling: SamplingOptions;
  ends: number[];
}

export async function loadText(
  metadata: Record<string, unknown> | undefined,
  header: Uint8Array,
  files: ModelFiles,
  override: string | null = null,
): Promise<Text> {
  const gguf = metadata ? ggufText(metadata, header) : null;
  const mute = gguf !== null && gguf.get("tokenizer.ggml.model") === undefined;
  const side = (mute && (await files.beside?.())) || files;
  const config = side.tokenizerConfig as TokenizerConfig | null;
  let tokenizer: Tokenizer | null = null;
  if (side.tokenizer) {
    tokenizer = new Tokenizer(side.tokenizer as TokenizerJson, config);
  } else if (gguf && !mute) {
    const made = fromGguf(gguf);
    tokenizer = new Tokenizer(made.json, made.config, made.warnings);
  }
  const template = tokenizer && pickTemplate({ override, file: side.chatTemplate, config, gguf }, tokenizer);
  return new Text(tokenizer, template, generationConfig(side, gguf));
}

function ggufText(metadata: Record<string, unknown>, header: Uint8Array): GgufText {
  return {
    header,
    get(key) {
      const value = metadata[key];
      return typeof value === "object" ? undefined : (value as string | number | boolean | undefined);
    },
    array(key) {
      const value = metadata[key];
      return typeof value === "object" ? (value as GgufArray) : undefined;
    },
  };
}

/** Reads generation_config.json or its counterpart in the header, and the end tokens of config.json. Values of a wrong type are ignored. */
function generationConfig(files: SideFiles, gguf: GgufText | null): GenerationConfig {
  const object = (value: unknown) =>
    typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  const own = object(files.generationConfig);
  const model = object(files.config && parsed(files.config));
  const sampling: Pick<SamplingOptions, ModelDefault> = {};
  for (const { name, file = "", gguf: key = "", whole, range } of modelDefaults) {
    const value = own[file] ?? gguf?.get(`general.sampling.${key}`);
    if (typeof value === "number" && value >= range[0] && value <= range[1])
      sampling[name] = whole ? Math.floor(value) : value;
  }
  if (own.do_sample === false) sampling.temperature = 0;
  const ends = [own.eos_token_id, model.eos_token_id]
    .flat()
    .filter((id): id is number => Number.isInteger(id) && (id as number) >= 0);
  return { sampling, ends };
}

/** config.json. The engine has read it already, unless it only lies beside a GGUF. */
function parsed(config: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(config));
  } catch (cause) {
    const message = `config.json: ${(cause as Error).message}`;
    throw new EngineError("BadHeader", message, { file: "config.json" }, { cause });
  }
}
