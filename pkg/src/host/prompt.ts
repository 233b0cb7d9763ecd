/** From a prompt to the ids that a session has to read. */

import type { ChatPrompt, PromptSpec } from "../rpc/protocol.ts";
import type { Rendered } from "../text/guard.ts";
import { safe } from "../text/safe.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage } from "../types/index.ts";
import type { HostedModel } from "./state.ts";

/**
 * The ids to add to a session. A chat repeats the whole conversation: the session keeps what it holds of it already, and what it
 * holds beyond that is taken back.
 *
 * @param sanitize cleans the prompt's texts first
 */
export function promptIds(model: HostedModel, prompt: PromptSpec, session: number, sanitize: boolean): number[] {
  const { engine } = model;
  if ("ids" in prompt) return prompt.ids;
  if ("text" in prompt) {
    // Special tokens belong to the beginning of a conversation alone.
    const addSpecial = prompt.addSpecial && engine.tokens(session).length === 0;
    return encode(model, sanitize ? safe(prompt.text) : prompt.text, addSpecial);
  }
  const ids = encodeChat(model, renderedChat(model, prompt, sanitize));
  const held = engine.tokens(session);
  let same = 0;
  while (same < held.length && same < ids.length - 1 && held[same] === ids[same]) same++;
  engine.truncate(session, same);
  return ids.slice(same);
}

/** The text of a chat by the model's template, and where no special token may be read across. */
export function renderedChat(
  { text }: HostedModel,
  { messages, tools, templateOptions = {}, parseSpecialTokens }: ChatPrompt,
  sanitize: boolean,
  addGenerationPrompt = true,
): Rendered {
  const given = sanitize ? messages.map(cleaned) : messages;
  const options = { tools: tools ?? null, templateOptions, addGenerationPrompt };
  return parseSpecialTokens
    ? { text: text.template.render(given, options), seams: [] }
    : text.template.renderGuarded(given, options, text.tokenizer.guard);
}

const cleaned = (message: ChatMessage): ChatMessage =>
  typeof message.content === "string" ? { ...message, content: safe(message.content) } : message;

/** The ids of a rendered chat, in which special tokens are those that the template wrote. */
export function encodeChat(model: HostedModel, { text, seams }: Rendered): number[] {
  return encode(model, text, false, seams);
}

/** Refuses a text that cannot fit before the tokenizer spends time on it. */
function encode(
  { text, info }: HostedModel,
  prompt: string,
  addSpecial: boolean,
  seams: readonly number[] | null = null,
): number[] {
  const { tokenizer } = text;
  const { contextLength } = info;
  const most = contextLength * tokenizer.longest;
  if (prompt.length <= most) return tokenizer.encode(prompt, { addSpecial, seams });
  const message = `the prompt is a text of length ${prompt.length}; the context's ${contextLength} tokens hold at most ${most}`;
  throw new EngineError("ContextFull", message, { expected: `at most ${most}`, found: String(prompt.length) });
}
