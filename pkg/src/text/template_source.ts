/** Which chat template a model has. What renders it is in chat.ts. */

import { EngineError } from "../types/errors.ts";
import { brief } from "./brief.ts";
import type { GgufText } from "./gguf.ts";
import type { TokenizerConfig } from "./tokenizer_json.ts";

const CONFIG = "tokenizer_config.json";

export interface TemplateSources {
  /** Text of chat_template.jinja, which wins over tokenizer_config.json. */
  file?: string | null;
  /** tokenizer_config.json, parsed. */
  config?: TokenizerConfig | null;
  /** Metadata of a GGUF file. */
  gguf?: GgufText | null;
  /** A template to use instead, or `"embedded"`: the model's own, even where it is known to be wrong. */
  override?: string | null;
}

export interface FoundTemplate {
  /** Where it was found, for people. */
  source: string;
  /** By name: `default`, and `tool_use` for when tools are given. */
  templates: Readonly<Record<string, string>>;
  /** Whether it is of a kind of file whose published template is known to be wrong. */
  suspect: boolean;
}

/** The source of a template that the caller gave. */
export const OPTION = "the chatTemplate option";

/** The template of a model, or null where it has none. */
export function findTemplate({ override, file, config, gguf }: TemplateSources): FoundTemplate | null {
  const found = (source: string, templates: Record<string, string>, suspect = false) => ({
    source,
    templates,
    suspect,
  });
  if (override && override !== "embedded") return found(OPTION, { default: override });
  if (file) return found("chat_template.jinja", { default: file });
  const listed = config?.chat_template;
  if (listed && !gguf) {
    return found(CONFIG, typeof listed === "string" ? { default: listed } : byName(listed));
  }
  const key = "tokenizer.chat_template";
  const embedded = gguf?.get(key);
  if (typeof embedded !== "string" || embedded === "") return null;
  const toolUse = gguf?.get(`${key}.tool_use`);
  const named = { default: embedded, ...(typeof toolUse === "string" ? { tool_use: toolUse } : {}) };
  const architecture = gguf?.get("general.architecture");
  const suspect = override !== "embedded" && (architecture === "bitnet-b1.58" || architecture === "bitnet-25");
  return found(key, named, suspect);
}

function byName(listed: unknown): Record<string, string> {
  const named: Record<string, string> = {};
  for (const one of Array.isArray(listed) ? listed : [null]) {
    if (typeof one?.name !== "string" || typeof one.template !== "string") {
      const [key, expected, found] = [
        "chat_template",
        "a text or a list of { name, template }",
        brief(JSON.stringify(listed)),
      ];
      const message = `${CONFIG}: ${key}: expected ${expected}, found ${found}`;
      throw new EngineError("BadTemplate", message, { file: CONFIG, key, expected, found });
    }
    named[one.name] = one.template;
  }
  return named;
}

export function missingTemplate(): EngineError {
  return new EngineError(
    "MissingTemplate",
    "this model has no chat template: use generate with a prompt of your own, or load it with the chatTemplate option",
    { option: "chatTemplate" },
  );
}
