/** An answer in its parts as they come: text, and calls of tools. */

import type { ChatMessage, ChatOptions, Finished, Model, Session } from "../types/index.ts";
import { CallReader, leftBehindCall, type TextOrCall } from "./call_reader.ts";
import { TokenTexts } from "./tokens.ts";

/** What becomes known of an answer; the last part is its end. */
export type AnswerPart = TextOrCall | { type: "end"; finished: Finished };

export interface ChatPartsOptions extends ChatOptions {
  /** Ends the answer behind its first call. @default false */
  oneCall?: boolean | undefined;
  /** The session that answers, where the model has one open for the conversation. @default none */
  session?: Session | undefined;
}

const known = new WeakMap<Model, TokenTexts>();

/**
 * Answers messages as `model.chat` does, with calls of tools told apart from text: a call as soon as its name is known, its arguments
 * as they come, as JSON. Leaving the loop stops the answer.
 *
 * @throws {EngineError} as `model.chat`
 * @example
 * ```ts
 * import { load } from "ternlight";
 * import demo from "ternlight/demo";
 * import { chatParts } from "ternlight/integration";
 *
 * // The demo model has no template of its own.
 * const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
 * const model = await load(demo, { chatTemplate });
 * for await (const part of chatParts(model, [{ role: "user", content: "Tell me of a king." }], { maxTokens: 16 })) {
 *   if (part.type === "text") process.stdout.write(part.text);
 *   if (part.type === "call") console.log("calls", part.name);
 * }
 * await model.close();
 * ```
 */
export async function* chatParts(
  model: Model,
  messages: readonly ChatMessage[],
  options: ChatPartsOptions = {},
): AsyncGenerator<AnswerPart, undefined> {
  const { oneCall = false, session, ...given } = options;
  const calls =
    given.tools?.length && given.toolChoice !== "none" ? new CallReader(given.tools, tokensOf(model)) : null;
  const generation = (session ?? model).chat(messages, calls ? { ...given, keepSpecialTokens: true } : given);
  let read = 0;
  for await (const { text, tokens } of generation) {
    read += tokens.length;
    if (calls) yield* await calls.read(text, tokens);
    else if (text !== "") yield { type: "text", text };
    if (oneCall && calls?.between) break;
  }
  const finished = await generation.finished;
  if (calls) yield* calls.end();
  yield { type: "end", finished: oneCall && calls?.between ? leftBehindCall(finished, read) : finished };
}

function tokensOf(model: Model): TokenTexts {
  const found = known.get(model) ?? new TokenTexts(model);
  known.set(model, found);
  return found;
}
