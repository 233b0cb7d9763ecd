/** From a prompt to the ids that a session has to read. */

import type { ChatPrompt, PromptSpec } from "../rpc/protocol.ts";
import type { Rendered } from "../text/guard.ts";
import { safe } from "../text/safe.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage } from "../types/index.ts";
import type { HostedModel } from "./state.ts";
import type { Text } from "./text.ts";

/**
 * The ids to add to a session. A chat repeats the whole conversation: the session keeps what it holds of it already, and what it
 * holds beyond that is taken back.
 *
 * @param sanitize cleans the prompt's texts first
 */
export function promptIds(model: HostedModel, prompt: PromptSpec, session: number, sanitize: boolean): number[] {
  const { engine, text, info } = model;
  // Special tokens belong to the beginning of a conversation alone.
  const begins = "text" in prompt && prompt.addSpecial && engine.tokens(session).length === 0;
  const ids = encodePrompt(text, info.contextLength, prompt, begins, sanitize);
  if (!("messages" in prompt)) return ids;
  const held = engine.tokens(session);
  let same = 0;
  while (same < held.length && same < ids.length - 1 && held[same] === ids[same]) same++;
  engine.truncate(session, same);
  return ids.slice(same);
}

/** All ids of a prompt. */
export function encodePrompt(
  text: Text,
  contextLength: number,
  prompt: PromptSpec,
  addSpecial: boolean,
  sanitize: boolean,
): number[] {
  if ("ids" in prompt) return prompt.ids;
  if ("messages" in prompt) return encodeChat(text, contextLength, renderedChat(text, prompt, sanitize));
  const of = sanitize ? safe(prompt.text) : prompt.text;
  refuseLong(of, contextLength, text);
  return text.tokenizer.encode(of, { addSpecial });
}

/** The text of a chat by the model's template, and where no special token may be read across. */
export function renderedChat(
  { template, tokenizer }: Text,
  { messages, tools, templateOptions = {}, parseSpecialTokens }: ChatPrompt,
  sanitize: boolean,
  addGenerationPrompt = true,
): Rendered {
  const given = sanitize ? messages.map(cleaned) : messages;
  const options = { tools: tools ?? null, templateOptions, addGenerationPrompt };
  if (parseSpecialTokens) return { text: template.render(given, options), seams: [] };
  return template.renderGuarded(given, options, tokenizer.guard);
}

/** The ids of a rendered chat, in which special tokens are those alone that the template has written. */
export function encodeChat(text: Text, contextLength: number, { text: rendered, seams }: Rendered): number[] {
  refuseLong(rendered, contextLength, text);
  return text.tokenizer.encode(rendered, { addSpecial: false, seams });
}

const cleaned = (message: ChatMessage): ChatMessage =>
  typeof message.content === "string" ? { ...message, content: safe(message.content) } : message;

/** Refuses a text that cannot fit before the tokenizer spends time on it. */
function refuseLong(prompt: string, contextLength: number, { tokenizer }: Text): void {
  const most = contextLength * tokenizer.longest;
  if (prompt.length <= most) return;
  const message = `the prompt is a text of length ${prompt.length}; the context's ${contextLength} tokens hold at most ${most}`;
  throw new EngineError("ContextFull", message, { expected: `at most ${most}`, found: String(prompt.length) });
}
