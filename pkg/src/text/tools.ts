/** Calls of tools, in the formats that models are trained to write them in. */

import type { FormatSpec } from "../options/response_format.ts";
import { EngineError, type ErrorCode } from "../types/errors.ts";
import type { ToolCall, ToolError } from "../types/index.ts";
import type { Tokenizer } from "./tokenizer.ts";

interface Tool {
  name: string;
  parameters: object;
}

type Tools = ReadonlyMap<string, Tool>;

export interface FoundCalls {
  toolCalls: ToolCall[];
  toolErrors: ToolError[];
}

/** Tools as templates take them: a function, or an object that says that it is one. */
function described(tools: readonly unknown[]): Tool[] {
  return tools.flatMap((tool) => {
    const { function: inner = tool } = (tool ?? {}) as { function?: unknown };
    const { name, parameters } = (inner ?? {}) as { name?: unknown; parameters?: unknown };
    const known = typeof parameters === "object" && parameters !== null ? parameters : { type: "object" };
    return typeof name === "string" ? { name, parameters: known } : [];
  });
}

/**
 * The calls in an answer that is written out with its special tokens: Hermes and Qwen (`<tool_call>`), Mistral (`[TOOL_CALLS]`),
 * `<function=name>`, and Llama 3, whose call is the whole answer. What was meant as a call and is none is reported with its
 * reason. The time is proportional to the text's length, whatever the model wrote.
 */
export function findCalls(text: string, tools: readonly unknown[]): FoundCalls {
  // The first of two tools with one name counts.
  const known: Tools = new Map(
    described(tools)
      .reverse()
      .map((tool) => [tool.name, tool]),
  );
  const toolCalls: ToolCall[] = [];
  const toolErrors: ToolError[] = [];
  for (const { text: source, read } of spans(text, known)) {
    try {
      for (const value of [read()].flat()) toolCalls.push(toCall(value, known));
    } catch (error) {
      toolErrors.push({ text: source, reason: (error as Error).message });
    }
  }
  return { toolCalls, toolErrors };
}

/** Parts of a text that are meant as calls. */
interface Span {
  text: string;
  read(): unknown;
}

function spans(text: string, tools: Tools): Span[] {
  if (text.includes("<tool_call>")) {
    return [...text.matchAll(/<tool_call>(.*?)(<\/tool_call>|(?=<tool_call>)|$)/gs)].map(([whole, body, end]) => ({
      text: whole,
      read() {
        if (!end) throw new Error("it has no </tool_call>");
        return /^\s*<function=/.test(body!) ? markedUp(body!, tools) : JSON.parse(body!);
      },
    }));
  }
  const [, ...parts] = text.split("[TOOL_CALLS]");
  if (parts.length > 0) return parts.flatMap(mistral);
  if (text.includes("<function=")) {
    return [...text.matchAll(/<function=.*?(<\/function>|(?=<function=)|$)/gs)].map(([whole, end]) => ({
      text: whole,
      read() {
        if (!end) throw new Error("it has no </function>");
        return markedUp(whole, tools);
      },
    }));
  }
  const bare = text.replace("<|python_tag|>", "").trim();
  // An answer may be JSON by itself: only what names something is meant as a call.
  return /^\{\s*"(type|name|parameters|arguments)"/.test(bare) ? sequence(bare) : [];
}

/** Objects one after another, by `;` or white space between. */
function sequence(text: string): Span[] {
  const found: Span[] = [];
  for (let at = 0; at < text.length; ) {
    const end = endOfValue(text, at);
    const part = text.slice(at, end);
    found.push({ text: part, read: () => JSON.parse(part) });
    at = end + /^[\s;]*/.exec(text.slice(end))![0].length;
  }
  return found;
}

/** A list of calls; newer models write `name[ARGS]{…}`, with `[CALL_ID]id` between. */
function mistral(part: string): Span[] {
  const named = /^\s*([^\s[\]{}]+)(?:\[CALL_ID\]([^[\]]*))?(?:\[ARGS\])?(?=\{)/.exec(part);
  const from = named?.[0].length ?? /^\s*/.exec(part)![0].length;
  const source = part.slice(from, endOfValue(part, from));
  const head = named && { name: named[1], ...(named[2] ? { id: named[2] } : {}) };
  return [
    {
      text: `[TOOL_CALLS]${part}`.trimEnd(),
      read: () => (head ? { ...head, arguments: JSON.parse(source) } : JSON.parse(source)),
    },
  ];
}

/** `<function=name>{…}</function>`, or with a `<parameter=name>` for each argument. */
function markedUp(text: string, tools: Tools): unknown {
  const call = element(text, "function", 0);
  if (!call) throw new Error("it has no </function>");
  const { name, body } = call;
  if (!body.includes("<parameter=")) return { name, arguments: JSON.parse(body.trim() || "{}") };
  const { properties = {} } = (tools.get(name)?.parameters ?? {}) as {
    properties?: Record<string, { type?: unknown }>;
  };
  const given: [string, unknown][] = [];
  for (let part = element(body, "parameter", 0); part; part = element(body, "parameter", part.end)) {
    const value = part.body.replace(/^\n/, "").replace(/\n$/, "");
    given.push([part.name, properties[part.name]?.type === "string" ? value : jsonOr(value)]);
  }
  return { name, arguments: Object.fromEntries(given) };
}

/**
 * The first `<tag=name>body</tag>` from a place on. A regular expression would look for the end again from each of its
 * beginnings, which takes the square of the text's length where there is no end.
 */
function element(text: string, tag: string, from: number): { name: string; body: string; end: number } | null {
  const [opening, closing] = [`<${tag}=`, `</${tag}>`];
  const start = text.indexOf(opening, from);
  const named = start < 0 ? -1 : text.indexOf(">", start);
  const end = named < 0 ? -1 : text.indexOf(closing, named);
  if (end < 0) return null;
  const name = text.slice(start + opening.length, named);
  return { name, body: text.slice(named + 1, end), end: end + closing.length };
}

/** What a text says as JSON; else itself. */
function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Where the JSON value that begins at `from` ends: at the bracket that closes it, or at the text's end. */
function endOfValue(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    const char = text[at];
    if (char === '"') {
      for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === "\\") at++;
    } else if (char === "{" || char === "[") depth++;
    else if ((char === "}" || char === "]") && --depth <= 0) return at + 1;
  }
  return text.length;
}

function toCall(value: unknown, tools: Tools): ToolCall {
  const call = (value ?? {}) as Record<string, unknown>;
  const { id, name } = call;
  if (typeof name !== "string") throw new Error("it names no tool");
  if (!tools.has(name)) throw new Error(`there is no tool ${JSON.stringify(name)}`);
  const given = call.arguments ?? call.parameters;
  // Some models write them as a text of their own.
  const args = typeof given === "string" ? JSON.parse(given) : given;
  if (typeof args !== "object" || args === null || Array.isArray(args)) throw new Error("its arguments are no object");
  return { ...(typeof id === "string" ? { id } : {}), name, arguments: args };
}

/** How calls are spelled: around all, around each, between its name and its arguments, and between two. */
interface Spelling {
  mark: string;
  all?: [string, string];
  each: [string, string, string];
  between?: string;
}

const SPELLINGS: readonly Spelling[] = [
  {
    mark: "<tool_call>",
    each: ['<tool_call>|\n{"name": "', '", "arguments": ', "}\n|</tool_call>"],
    between: "\n",
  },
  { mark: "[ARGS]", each: ["[TOOL_CALLS]|", "|[ARGS]|", ""], between: "" },
  {
    mark: "[TOOL_CALLS]",
    all: ["[TOOL_CALLS]|[", "]"],
    each: ['{"name": "', '", "arguments": ', "}"],
    between: ", ",
  },
  { mark: '"parameters":', each: ['{"name": "', '", "parameters": ', "}"] },
];

/** A format of nothing but calls, as a template's model writes them. */
export function callFormat(
  template: string,
  tools: readonly unknown[],
  choice: "required" | { name: string },
  tokenizer: Tokenizer,
): FormatSpec {
  const refuse = (code: ErrorCode, reason: string) =>
    new EngineError(code, `toolChoice: ${reason}`, { option: "toolChoice", reason });
  const spelling = SPELLINGS.find(({ mark }) => template.includes(mark));
  if (!spelling || template.includes("<function=")) {
    throw refuse("UnsupportedOption", "this model's template spells calls in no way that is known here");
  }
  const chosen = described(tools).filter(({ name }) => choice === "required" || choice.name === name);
  if (chosen.length === 0) throw refuse("InvalidArgument", "no such tool is given");
  // Marks are single tokens in most vocabularies, special or not: those tokens are what the model was trained on.
  const literal = (text: string) =>
    text
      .split("|")
      .filter((part) => part !== "")
      .map((part) => {
        const ids = /^[<[]./.test(part) ? tokenizer.encode(part, { addSpecial: false }) : [];
        return ids.length === 1 ? `<[${ids[0]}]>` : JSON.stringify(part);
      })
      .join(" ");
  const { all: [first, last] = ["", ""], each, between } = spelling;
  const [before, middle, after] = each;
  const calls = chosen.map(
    ({ name }, n) =>
      `call${n}: ${literal(before)} ${JSON.stringify(name)} ${literal(middle)} @schema${n} ${literal(after)}`,
  );
  const more = between === undefined || choice !== "required" ? "" : `(${literal(between)} call)*`;
  const start = `start: ${literal(first)} call ${more} ${literal(last)}`;
  const call = `call: ${chosen.map((_, n) => `call${n}`).join(" | ")}`;
  const grammar = [start, call, ...calls].join("\n");
  const schemas = chosen.map(({ parameters }) => parameters);
  return { kind: "both", source: JSON.stringify({ grammar, schemas }), option: "tools" };
}
