/** From a prompt to the ids that a session has to read. */

import type { ChatPrompt, PromptSpec } from "../rpc/protocol.ts";
import { MAX_TEXT } from "../text/limits.ts";
import { safe } from "../text/safe.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage } from "../types/index.ts";
import type { HostedModel } from "./state.ts";
import type { Text } from "./text.ts";
import { cuts, without } from "./turns.ts";

export interface PromptOptions {
  /** Cleans the prompt's texts first. */
  sanitize: boolean;
  /** Makes room where a prompt is too long, instead of failing. */
  shift: boolean;
  /** Ids behind the messages of a chat: the answer so far, where the context has become full. */
  answered?: readonly number[];
}

/** What a session has to read behind what it holds by then, and how many messages were left out to make room. */
export interface PromptIds {
  ids: number[];
  dropped: number;
}

/**
 * The ids to add to a session. A chat repeats the whole conversation: the session keeps what it holds of it already, and what it
 * holds beyond that is taken back.
 */
export function promptIds(model: HostedModel, prompt: PromptSpec, session: number, options: PromptOptions): PromptIds {
  const { contextLength } = model.info;
  if ("messages" in prompt) {
    const { ids, dropped } = chatIds(model.text, contextLength, prompt, options);
    return { ids: beyond(model, session, ids), dropped };
  }
  const held = model.engine.tokens(session);
  // Special tokens belong to the beginning of a conversation alone.
  const begins = "text" in prompt && prompt.addSpecial && held.length === 0;
  const ids = encodePrompt(model.text, contextLength, prompt, begins, options);
  if (!options.shift || held.length + ids.length <= contextLength) return { ids, dropped: 0 };
  return { ids: beyond(model, session, windowOf([...held, ...ids], contextLength)), dropped: 0 };
}

/** All ids of a prompt. */
export function encodePrompt(
  text: Text,
  contextLength: number,
  prompt: PromptSpec,
  addSpecial: boolean,
  options: PromptOptions,
): number[] {
  if ("ids" in prompt) return prompt.ids;
  if ("messages" in prompt) return chatIds(text, contextLength, prompt, options).ids;
  const { sanitize, shift } = options;
  return encode(text, contextLength, sanitize ? safe(prompt.text) : prompt.text, { addSpecial, shift });
}

/** Messages as text, with the places that no special token is read across. */
export function renderChat({ chat }: Text, prompt: ChatPrompt, addGenerationPrompt = true) {
  const { tools = null, templateOptions = {}, parseSpecialTokens = false } = prompt;
  return chat.render(prompt.messages, { tools, templateOptions, addGenerationPrompt }, parseSpecialTokens);
}

/** Takes back what a session holds beyond its beginning in common with these ids; the ids that it has to read then. */
function beyond({ engine }: HostedModel, session: number, ids: number[]): number[] {
  const held = engine.tokens(session);
  let same = 0;
  while (same < held.length && same < ids.length - 1 && held[same] === ids[same]) same++;
  engine.truncate(session, same);
  return ids.slice(same);
}

/** As the engine shifts a conversation that has filled its context: the first ids and the latest half of the context stay. */
function windowOf(ids: number[], contextLength: number): number[] {
  const first = Math.min(32, Math.floor(contextLength / 8));
  const latest = Math.floor(contextLength / 2);
  return ids.length <= contextLength ? ids : [...ids.slice(0, first), ...ids.slice(ids.length - latest)];
}

/** The ids of a chat and of the answer so far: of all messages, or of as many turns as leave room for a quarter of the context. */
function chatIds(text: Text, contextLength: number, prompt: ChatPrompt, options: PromptOptions): PromptIds {
  const { sanitize, shift, answered = [] } = options;
  const messages = sanitize ? prompt.messages.map(cleaned) : prompt.messages;
  const idsWithout = (count: number) => {
    const rendered = renderChat(text, { ...prompt, messages: without(messages, count) });
    return encode(text, contextLength, rendered.text, { seams: rendered.seams, shift }).concat(answered);
  };
  const ids = idsWithout(0);
  if (!shift || ids.length <= contextLength) return { ids, dropped: 0 };
  const places = cuts(messages, contextLength);
  let [low, high] = [0, places.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (idsWithout(places[middle]!).length <= 0.75 * contextLength) high = middle;
    else low = middle + 1;
  }
  const dropped = places[low] ?? 0;
  return { ids: windowOf(idsWithout(dropped), contextLength), dropped };
}

const cleaned = (message: ChatMessage): ChatMessage =>
  typeof message.content === "string" ? { ...message, content: safe(message.content) } : message;

interface EncodeOptions {
  addSpecial?: boolean;
  seams?: readonly number[] | null;
  shift: boolean;
}

/** Refuses a text that cannot fit before the tokenizer spends time on it, or leaves out its middle. */
function encode({ tokenizer }: Text, contextLength: number, prompt: string, options: EncodeOptions): number[] {
  const { addSpecial = false, seams = null, shift } = options;
  const most = contextLength * tokenizer.longest;
  if (prompt.length <= most) return tokenizer.encode(prompt, { addSpecial, seams });
  if (shift) {
    // Half of that is enough for all ids that stay at either end.
    const half = Math.floor(Math.min(most, MAX_TEXT) / 2);
    const gap = prompt.length - 2 * half;
    const kept = seams?.filter((at) => at < half || at > half + gap).map((at) => (at < half ? at : at - gap)) ?? null;
    return tokenizer.encode(prompt.slice(0, half) + prompt.slice(-half), { addSpecial, seams: kept });
  }
  const message = `the prompt is a text of length ${prompt.length}; the context's ${contextLength} tokens hold at most ${most}`;
  throw new EngineError("ContextFull", message, { expected: `at most ${most}`, found: String(prompt.length) });
}
