/** "Validate and canonicalize a prompt", with what Web IDL checks before it, and the options of creation. */

import { show } from "../options/show.ts";
import { failure } from "./errors.ts";
import type {
  LanguageModelCreateCoreOptions,
  LanguageModelCreateOptions,
  LanguageModelExpected,
  LanguageModelMessageType,
  LanguageModelPrompt,
  LanguageModelRole,
  LanguageModelSamplingMode,
} from "./idl.ts";

/** A message whose content is one text, or what a tool has answered. */
export interface TextMessage {
  role: LanguageModelRole | "tool";
  content: string;
  prefix: boolean;
  name?: string;
  tool_call_id?: string;
}

const ROLES = ["system", "user", "assistant"];
const TYPES = ["text", "image", "audio", "tool-call", "tool-response"];

/** Models of text read and write these, and call tools. */
export const INPUTS: readonly LanguageModelMessageType[] = ["text", "tool-response"];
export const OUTPUTS: readonly LanguageModelMessageType[] = ["text", "tool-call"];

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

const isIterable = (value: unknown): value is Iterable<unknown> =>
  isObject(value) && typeof value[Symbol.iterator as unknown as string] === "function";

const wrong = (what: string, expected: string, found: unknown) =>
  new TypeError(`${what} must be ${expected}, not ${show(found)}`);

/** Checks a list where one was given, and each of its values. */
function checkList(what: string, given: unknown, check: (value: unknown, place: string) => void): void {
  if (given === undefined) return;
  if (!Array.isArray(given)) throw wrong(what, "a list", given);
  for (const [at, value] of given.entries()) check(value, `${what}[${at}]`);
}

/** Checks the options of any method, and their signal. */
export function checkSignal(options: unknown): void {
  if (!isObject(options)) throw wrong("options", "an object", options);
  const { signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong("signal", "an AbortSignal", signal);
}

function oneOf<T extends string>(values: readonly T[], given: unknown, what: string): T {
  if (values.includes(given as T)) return given as T;
  throw wrong(what, values.map((one) => JSON.stringify(one)).join(" or "), given);
}

/** @param begun whether the conversation holds something already, so that no system message may come */
export function validPrompt(input: LanguageModelPrompt, begun: boolean): TextMessage[] {
  if (!isObject(input)) return [{ role: "user", content: String(input), prefix: false }];
  if (!isIterable(input)) throw wrong("a prompt", "a text or messages", input);
  const given = Array.from<unknown>(input);
  if (given.length === 0) return [{ role: "user", content: "", prefix: false }];
  let appended = begun;
  return given.flatMap((message, i) => {
    if (!isObject(message)) throw wrong("a message", "an object", message);
    const role = oneOf(ROLES, message.role, "role") as LanguageModelRole;
    const prefix = Boolean(message.prefix);
    if (prefix && role !== "assistant") throw failure("SyntaxError", "prefix is for messages of the assistant");
    if (prefix && i < given.length - 1) throw failure("SyntaxError", "prefix is for the last message");
    if (role === "system" && appended) throw new TypeError("a system message must be the first of the conversation");
    appended = true;
    return contentOf(message.content, role).map((part) => ({ role, prefix, ...part }));
  });
}

type Content = Pick<TextMessage, "content"> & Partial<TextMessage>;

/** Adjacent texts are one, with nothing between them. What a tool has answered is a message of its own. */
function contentOf(content: unknown, role: LanguageModelRole): Content[] {
  if (content === undefined) throw wrong("content", "a text or parts", content);
  if (!isObject(content)) return [{ content: String(content) }];
  if (!isIterable(content)) throw wrong("content", "a text or parts", content);
  const found: Content[] = [];
  for (const part of content) {
    if (!isObject(part) || part.value === undefined) throw wrong("a part of content", "{ type, value }", part);
    const type = oneOf(TYPES, part.type, "type");
    const isResponse = type === "tool-response" && role === "user";
    if (type !== "text" && !isResponse) {
      const whose = role === "user" ? "this model" : `a message of the ${role}`;
      throw failure("NotSupportedError", `${whose} takes text, and no ${type}`);
    }
    if (isResponse) {
      found.push(responseOf(part.value));
      continue;
    }
    if (typeof part.value !== "string") throw wrong("the value of a text", "a text", part.value);
    const last = found.at(-1);
    if (last && last.role !== "tool") last.content += part.value;
    else found.push({ content: part.value });
  }
  return found.length > 0 ? found : [{ content: "" }];
}

/** `{ callId, name, result }` or `{ callId, name, errorMessage }`, with a result of texts and objects; or a text. */
function responseOf(value: unknown): Content {
  if (typeof value === "string") return { role: "tool", content: value };
  const { callId, name, result, errorMessage } = isObject(value) ? value : {};
  if (result === undefined && errorMessage === undefined)
    throw wrong("a tool-response", "{ callId, name, result } or { callId, name, errorMessage }", value);
  const texts = isIterable(result)
    ? Array.from(result, (part) => {
        const { type, value: inner } = isObject(part) ? part : {};
        if (oneOf(["text", "object", "image", "audio"], type, "the type of a result") === "text") return String(inner);
        if (type === "object") return JSON.stringify(inner);
        throw failure("NotSupportedError", `this model takes text, and no ${type}`);
      })
    : [typeof result === "object" ? JSON.stringify(result) : String(result ?? `error: ${errorMessage}`)];
  return {
    role: "tool",
    content: texts.join("\n"),
    ...(typeof name === "string" && { name }),
    ...(typeof callId === "string" && { tool_call_id: callId }),
  };
}

const MODES = [
  "most-predictable",
  "predictable",
  "slightly-predictable",
  "balanced",
  "slightly-creative",
  "creative",
  "most-creative",
  "default",
] as const;

/** Checks the options of `create` and `availability`. @returns the sampling mode that is meant */
export function validOptions(options: LanguageModelCreateOptions): LanguageModelSamplingMode {
  checkSignal(options);
  const { samplingMode = "default", topK, temperature, initialPrompts, monitor } = options;
  const mode = oneOf(MODES, samplingMode, "samplingMode");
  for (const name of ["expectedInputs", "expectedOutputs"] as const) checkList(name, options[name], checkExpected);
  for (const [name, value] of Object.entries({ topK, temperature })) {
    if (value === undefined) continue;
    if (typeof value !== "number" || Number.isNaN(value)) throw wrong(name, "a number", value);
    if (mode !== "default") throw new TypeError("samplingMode stands for topK and temperature: give it or them");
  }
  checkList("tools", options.tools, checkTool);
  checkList("initialPrompts", initialPrompts, () => {});
  if (monitor !== undefined && typeof monitor !== "function") throw wrong("monitor", "a function", monitor);
  return mode === "default" ? "balanced" : mode;
}

function checkExpected(expected: unknown, place: string): void {
  if (!isObject(expected)) throw wrong(place, "{ type, languages }", expected);
  oneOf(TYPES, expected.type, `${place}.type`);
  checkList(`${place}.languages`, expected.languages, (language, place) => {
    if (typeof language !== "string") throw wrong(place, "a language tag", language);
    // It throws a RangeError for what is no language tag.
    Intl.getCanonicalLocales(language);
  });
}

function checkTool(tool: unknown, place: string): void {
  if (!isObject(tool)) throw wrong(place, "{ name, description, inputSchema, execute }", tool);
  const { name, description, inputSchema, execute } = tool;
  for (const [key, text] of Object.entries({ name, description }))
    if (typeof text !== "string") throw wrong(`${place}.${key}`, "a text", text);
  if (!isObject(inputSchema)) throw wrong(`${place}.inputSchema`, "a JSON schema", inputSchema);
  if (typeof execute !== "function") throw wrong(`${place}.execute`, "a function", execute);
}

/** Whether a model of text has all of it. */
export function supports({ expectedInputs = [], expectedOutputs = [] }: LanguageModelCreateCoreOptions): boolean {
  const all = (expected: readonly LanguageModelExpected[], known: readonly string[]) =>
    expected.every(({ type }) => known.includes(type));
  return all(expectedInputs, INPUTS) && all(expectedOutputs, OUTPUTS);
}
