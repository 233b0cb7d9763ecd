/** Options are checked where they enter: an unknown name or a wrong type is an error that names the option. */

import type { ChatMessage, GenerateOptions, SamplingOptions } from "../types/index.ts";
import { type Check, checkAll, checked, checkOf, type Known, wrong } from "./check.ts";
import { MAX_TOKENS, type Option } from "./option.ts";
import { answerOptions, type Row } from "./routes.ts";
import { type FunctionName, functions, groups } from "./table.ts";

/** The options of a function, by name. */
export const optionsOf = (name: FunctionName): Known =>
  Object.assign({}, ...functions[name].map((group) => groups[group]));

type Defaults = { [R in Extract<Row, [string, { default: unknown }]> as R[0]]: R[1]["default"] };
/** The defaults that have a value. */
export const defaults: Defaults = Object.fromEntries(
  Object.values(groups).flatMap((group) =>
    Object.entries<Option>(group).map(([name, option]) => [name, option.default]),
  ),
) as Defaults;

/** As `checkAll`; `label` is the function's name for its caller. */
export function checkOptions<T extends object>(name: FunctionName, options: T | undefined, label: string = name): T {
  return checkAll(label, optionsOf(name), options);
}

/** The options of an answer that cross to the worker as they are. */
export const forWorker = (options: GenerateOptions): SamplingOptions & { maxTokens?: number } =>
  Object.fromEntries(answerOptions.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));

/** Token ids as given by a caller. */
export function checkIds(name: string, ids: unknown, option = "ids", expected = "a list of token ids"): number[] {
  const list = Array.isArray(ids) || ids instanceof Uint32Array || ids instanceof Int32Array ? Array.from(ids) : null;
  if (!list) throw wrong(name, option, expected, ids);
  const id = checkOf({ integer: [0, MAX_TOKENS] });
  for (const [at, one] of list.entries()) checked(name, `${option}[${at}]`, id, one);
  return list;
}

const isString: Check = (value) => (typeof value === "string" ? null : "a string");

export const checkText = (name: string, text: string, option = "text"): string => checked(name, option, isString, text);

export function checkTexts(name: string, texts: unknown): (string | number[])[] {
  if (!Array.isArray(texts)) throw wrong(name, "texts", "a list of texts and lists of token ids", texts);
  const expected = "a text or a list of token ids";
  return Array.from(texts, (text, at) =>
    typeof text === "string" ? text : checkIds(name, text, `texts[${at}]`, expected),
  );
}

export const checkCount = (name: string, count: number, most: number): number =>
  checked(name, "count", checkOf({ integer: [0, most] }), count);

/** Messages as templates take them: parts of text, which are OpenAI's shape, are joined. */
export function checkMessages(name: string, messages: unknown): ChatMessage[] {
  const whole = (one: unknown) => typeof (one as { role?: unknown } | null)?.role === "string";
  if (!Array.isArray(messages) || messages.length === 0 || ![...messages].every(whole)) {
    throw wrong(name, "messages", "a list of { role, content }", messages);
  }
  return messages.map((message, at) => {
    const { role, content } = message;
    if (!Array.isArray(content)) {
      // An answer of calls has no content, and what a tool gives may be any JSON.
      const free = role === "tool" || (content == null && role !== "system" && role !== "user");
      if (free || typeof content === "string") return { ...message };
      throw wrong(name, `messages[${at}].content`, "a text or a list of its parts", content);
    }
    const texts = Array.from(content, (part, index) => {
      if (part?.type === "text" && typeof part.text === "string") return part.text;
      throw wrong(name, `messages[${at}].content[${index}]`, '{ type: "text", text }', part?.type ?? part);
    });
    return { ...message, content: texts.join("\n") };
  });
}
