/** From a prompt to the ids that a session has to read. */

import type { ChatPrompt, PromptSpec } from "../rpc/protocol.ts";
import { COUNTED_TEXT, MAX_TEXT } from "../text/limits.ts";
import { safe } from "../text/safe.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage, Truncate } from "../types/index.ts";
import type { HostedModel } from "./state.ts";
import type { Text } from "./text.ts";
import { cuts, without } from "./turns.ts";

export interface PromptOptions {
  /** Cleans the prompt's texts first. */
  sanitize: boolean;
  /** Makes room where a prompt is too long, instead of failing. */
  shift: boolean;
  /** Which part of a prompt that is too long goes, and how many tokens are kept free for its answer. */
  truncate?: { side: Exclude<Truncate, "none">; free: number };
  /** Ids behind the messages of a chat: the answer so far, where the context has become full. */
  answered?: readonly number[];
}

/** What a session has to read behind what it holds by then, and how many messages were left out to make room. */
export interface PromptIds {
  ids: number[];
  dropped: number;
  /** Tokens that `truncate` has left out. */
  truncated?: number;
}

/**
 * The ids to add to a session. A chat repeats the whole conversation: the session keeps what it holds of it already, and what it
 * holds beyond that is taken back.
 */
export function promptIds(model: HostedModel, prompt: PromptSpec, session: number, options: PromptOptions): PromptIds {
  const { contextLength } = model.info;
  if ("messages" in prompt) {
    const { ids: all, dropped } = chatIds(model.text, contextLength, prompt, options);
    const { ids, truncated } = truncate(model.text, all, contextLength, options.truncate);
    return { ids: beyond(model, session, ids), dropped, truncated };
  }
  const held = model.engine.tokens(session);
  // Special tokens belong to the beginning of a conversation alone.
  const begins = "text" in prompt && prompt.addSpecial && held.length === 0;
  const all = encodePrompt(model.text, contextLength, prompt, begins, options);
  const { ids, truncated } = truncate(model.text, all, contextLength - held.length, options.truncate);
  if (truncated > 0) return { ids, dropped: 0, truncated };
  if (!options.shift || held.length + ids.length <= contextLength) return { ids, dropped: 0 };
  return { ids: beyond(model, session, windowOf([...held, ...ids], contextLength)), dropped: 0 };
}

/** The ids that stay of a prompt that has room for so many, its answer's included. */
function truncate(text: Text, ids: number[], room: number, how: PromptOptions["truncate"]) {
  const most = Math.max(1, room - (how?.free ?? 0));
  if (!how || ids.length <= most) return { ids, truncated: 0 };
  const begins = text.tokenizerOrNull?.bos?.id === ids[0] && most > 1 ? 1 : 0;
  const first = how.side === "right" ? most : how.side === "left" ? begins : Math.ceil(most / 2);
  const last = most - first;
  return { ids: [...ids.slice(0, first), ...ids.slice(ids.length - last)], truncated: ids.length - most };
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
  const side = options.truncate?.side;
  return encode(text, contextLength, sanitize ? safe(prompt.text) : prompt.text, { addSpecial, shift, side });
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
    const { seams } = rendered;
    return encode(text, contextLength, rendered.text, { seams, shift, side: options.truncate?.side }).concat(answered);
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
  /** Which part may go. */
  side?: Truncate | undefined;
}

/** Refuses a text that cannot fit before the tokenizer spends time on it, or leaves out its middle. */
function encode({ tokenizer }: Text, contextLength: number, prompt: string, options: EncodeOptions): number[] {
  const { addSpecial = false, seams = null, shift, side = shift ? "middle" : "none" } = options;
  const most = contextLength * tokenizer.longest;
  // Of a text of usual length all tokens are counted.
  const all = side === "none" ? most : Math.min(Math.max(most, COUNTED_TEXT), MAX_TEXT);
  if (prompt.length <= all) {
    if (side === "none") checkBeginning(tokenizer, contextLength, prompt, seams);
    return tokenizer.encode(prompt, { addSpecial, seams });
  }
  if (side !== "none") {
    // That is enough for all ids that stay, at either end half of it.
    const first = side === "right" ? all : side === "left" ? 0 : Math.floor(all / 2);
    const gap = prompt.length - all;
    const kept =
      seams?.filter((at) => at < first || at > first + gap).map((at) => (at < first ? at : at - gap)) ?? null;
    return tokenizer.encode(prompt.slice(0, first) + prompt.slice(first + gap), { addSpecial, seams: kept });
  }
  const message = `the prompt is a text of length ${prompt.length}; the context's ${contextLength} tokens hold at most ${most}`;
  throw new EngineError("ContextFull", message, { expected: `at most ${most}`, found: String(prompt.length) });
}

/** A text with more characters than this for each token of the context hardly fits, although some vocabularies have longer tokens. */
const USUAL_LENGTH = 16;

/** Refuses a long text whose beginning alone makes twice the tokens that there is room for: a text of millions takes seconds to encode. */
function checkBeginning(
  tokenizer: Text["tokenizer"],
  contextLength: number,
  prompt: string,
  seams: readonly number[] | null,
) {
  const end = USUAL_LENGTH * contextLength;
  if (prompt.length <= end) return;
  const beginning = { addSpecial: false, seams: seams?.filter((at) => at < end) ?? null };
  const { length } = tokenizer.encode(prompt.slice(0, end), beginning);
  if (length < 2 * contextLength) return;
  const message = `the first ${end} of the prompt's ${prompt.length} characters are ${length} tokens; the context holds ${contextLength}`;
  throw new EngineError("ContextFull", message, { expected: `at most ${contextLength}`, found: `${length} and more` });
}
