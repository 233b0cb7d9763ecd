/** What chats need, as a loaded model has it, and what a load brings for some texts. */
import { Guard } from "../../../src/text/guard.ts";
import { type ChatTemplate, openTemplate } from "../../../src/text/template.ts";
import { findTemplate, type TemplateSources } from "../../../src/text/template_source.ts";
import type { Tokenizer } from "../../../src/text/tokenizer.ts";

export const platform = {
  chats: () => import("../../../src/text/chat.ts"),
  gguf: () => import("../../../src/text/from_gguf.ts"),
};

export const guardOf = (tokenizer: Tokenizer): Guard => new Guard(tokenizer.special);

/** The template of a model, or null where it has none. */
export function templateOf(sources: TemplateSources, tokenizer: Tokenizer): ChatTemplate | null {
  const found = findTemplate(sources);
  return found && openTemplate(found, tokenizer);
}
