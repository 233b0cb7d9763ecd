/** The text part of a model: its tokenizer and its chat template, from the files beside it or from its header. */

import { type ModelDefault, modelDefaults } from "../options/routes.ts";
import { type ModelFiles, NO_SIDE, type SideFiles } from "../source/files.ts";
import type { Chat } from "../text/chat.ts";
import type { GgufArray, GgufText } from "../text/gguf.ts";
import { findTemplate, missingTemplate } from "../text/template_source.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import type { TokenizerConfig, TokenizerJson } from "../text/tokenizer_json.ts";
import { EngineError } from "../types/errors.ts";
import type { Description, Pooling, SamplingOptions } from "../types/index.ts";
import type { Platform } from "./platform.ts";

export class Text {
  readonly #tokenizer: Tokenizer | null;
  /** What a model with a chat template has. */
  readonly chatOrNull: Chat | null;
  /** The sampling values of the model's own configuration. */
  readonly sampling: SamplingOptions;
  /** How an embedding is made of a text's states, unless a caller asks for another way. */
  readonly pooling: Pooling;
  /** The ids that end an answer. */
  readonly ends: readonly number[];
  readonly warnings: readonly string[];

  constructor(tokenizer: Tokenizer | null, chat: Chat | null, generation: GenerationConfig, pooling: Pooling) {
    this.#tokenizer = tokenizer;
    this.chatOrNull = chat;
    this.sampling = generation.sampling;
    this.pooling = pooling;
    this.ends = [...new Set([...(tokenizer?.ends.map((end) => end.id) ?? []), ...generation.ends])];
    this.warnings = [
      ...(tokenizer?.warnings ?? ["the model has no tokenizer: prompts must be token ids"]),
      ...(chat?.template.warnings ?? []),
    ];
  }

  /** The warnings, with those of a model of so many tokens. */
  warningsFor(vocab: number): string[] {
    const last = (this.#tokenizer?.vocab ?? 0) - 1;
    const beyond = `the tokenizer's ids go to ${last}, the model's to ${vocab - 1}: a prompt with one of the others is refused`;
    return last < vocab ? [...this.warnings] : [...this.warnings, beyond];
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

  get chat(): Chat {
    if (!this.chatOrNull) throw missingTemplate();
    return this.chatOrNull;
  }

  describe(): Pick<Description, "tokenizer" | "template"> {
    const tokenizer = this.#tokenizer;
    const template = this.chatOrNull?.template ?? null;
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

/** @param platform brings what only some models need: those that can chat, and those with a tokenizer in a header */
export async function loadText(
  metadata: Record<string, unknown> | undefined,
  header: Uint8Array,
  files: ModelFiles,
  platform: Pick<Platform, "chats" | "gguf">,
  override: string | null = null,
): Promise<Text> {
  const gguf = metadata ? ggufText(metadata, header) : null;
  const mute = gguf !== null && gguf.get("tokenizer.ggml.model") === undefined;
  const side = gguf && !mute ? NO_SIDE : await files.side();
  const config = side.tokenizerConfig as TokenizerConfig | null;
  const found = findTemplate({ override, file: side.chatTemplate, config, gguf });
  // It comes while the tokenizer is built.
  const chats = found && (side.tokenizer || (gguf && !mute)) ? platform.chats() : null;
  chats?.catch(() => {});
  let tokenizer: Tokenizer | null = null;
  if (side.tokenizer) {
    tokenizer = new Tokenizer(side.tokenizer as TokenizerJson, config);
  } else if (gguf && !mute) {
    const made = (await platform.gguf()).fromGguf(gguf);
    tokenizer = new Tokenizer(made.json, made.config, made.warnings);
  }
  const chat = found && tokenizer && chats ? new (await chats).Chat(found, tokenizer) : null;
  return new Text(tokenizer, chat, generationConfig(side, gguf), poolingOf(gguf));
}

function ggufText(metadata: Record<string, unknown>, header: Uint8Array): GgufText {
  return {
    header,
    get: (key) => kindOf(key, false) as string | number | boolean | undefined,
    array: (key) => kindOf(key, true) as GgufArray | undefined,
  };
  function kindOf(key: string, array: boolean): unknown {
    const value = metadata[key];
    if (value === undefined || (typeof value === "object") === array) return value;
    // Settings of sampling and the like have defaults.
    if (!key.startsWith("tokenizer.")) return undefined;
    const expected = array ? "a list" : "a single value";
    throw new EngineError("BadTokenizer", `${key}: expected ${expected}`, { key, expected });
  }
}

/** llama.cpp's number for the last token's state; decoders that were trained to embed name it. */
const LAST = 3;

const poolingOf = (gguf: GgufText | null): Pooling =>
  gguf?.get(`${gguf.get("general.architecture")}.pooling_type`) === LAST ? "last" : "mean";

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
