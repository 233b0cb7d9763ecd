/**
 * Separates calls of tools from an answer as it comes, in the formats that `tools.ts` finds in whole answers. A call is told as soon as
 * its name is known, its arguments as they come; only `<function=…>` waits for its end. What turns out to be no call is text again.
 */

import { CallObject } from "./call_object.ts";
import { JsonValue } from "./json_value.ts";
import { findCalls } from "./tools.ts";

export type CallEvent =
  | { type: "text"; text: string }
  /** A call begins; calls are numbered from 0. */
  | { type: "call"; index: number; id: string | undefined; name: string }
  | { type: "arguments"; index: number; text: string };

const OPENERS = ["<tool_call>", "[TOOL_CALLS]", "<function="];
const BARE = /^\{\s*"(type|name|parameters|arguments)"/;
/** A beginning that may still become one of a call without a mark. */
const MAYBE_BARE = /^(\{\s*("[a-z]*)?)?$/;
const PYTHON = "<|python_tag|>";
/** Characters that may wait for what decides. */
const MAX_HELD = 512;
/** `name[CALL_ID]id[ARGS]`, before the arguments. */
const HEAD = /^([^\s[\]{}]+)(?:\[CALL_ID\]([^[\]]*))?(?:\[ARGS\])?$/;

/** What comes next: text, or the parts of one format. */
type Mode =
  | "start"
  | "text"
  | "tagged"
  | "tail"
  | "marked"
  | "head"
  | "arguments"
  | "list"
  | "object"
  | "bare"
  | "function";

export class CallStream {
  readonly #tools: readonly unknown[];
  readonly #names: ReadonlySet<string>;
  #mode: Mode = "start";
  /** What has come and is not read. */
  #held = "";
  /** What was read of a call that has not begun: text, if it never does. null where there is none such. */
  #raw: string | null = null;
  /** White space, which only counts as text where text follows. */
  #space = "";
  #calls = 0;
  #object: CallObject | null = null;
  #value = new JsonValue();
  /** Where an object that has ended leads to. */
  #after: Mode = "text";
  #afterList: Mode = "text";
  /** The last characters that were passed over in a function, where its end may have begun. */
  #tail = "";
  #events: CallEvent[] = [];

  constructor(tools: readonly unknown[]) {
    this.#tools = tools;
    const named = tools.map((tool) => {
      const { function: inner = tool } = (tool ?? {}) as { function?: unknown };
      return (inner as { name?: unknown } | null)?.name;
    });
    this.#names = new Set(named.filter((name) => typeof name === "string"));
  }

  /** How many calls have begun. */
  get calls(): number {
    return this.#calls;
  }

  /** Whether a call has ended and no other one has begun. */
  get between(): boolean {
    return this.#calls > 0 && ["text", "tail", "list", "bare"].includes(this.#mode);
  }

  push(text: string): CallEvent[] {
    this.#held += text;
    while (this.#step()) {}
    return this.#events.splice(0);
  }

  /** Nothing more comes. */
  end(): CallEvent[] {
    const rest = ["tail", "list", "bare"].includes(this.#mode) ? "" : this.#held;
    this.#text((this.#raw ?? "") + rest, true);
    [this.#raw, this.#held, this.#space] = [null, "", ""];
    return this.#events.splice(0);
  }

  /** Reads on. @returns whether there may be more to read */
  #step(): boolean {
    if (this.#held === "") return false;
    switch (this.#mode) {
      case "start":
        return this.#start();
      case "text":
        return this.#search();
      case "tagged":
        return this.#choose({ "{": "object", "[": "list", "<": "function" }, "tail");
      case "marked":
        return this.#choose({ "{": "object", "[": "list" }, "text", "head");
      case "head":
        return this.#head();
      case "arguments":
        return this.#arguments();
      case "list":
        return this.#list();
      case "object":
        return this.#read();
      case "bare":
        return this.#bare();
      case "tail":
        return this.#rest();
      case "function":
        return this.#function();
    }
  }

  #go(mode: Mode): true {
    this.#mode = mode;
    this.#tail = "";
    return true;
  }

  /** What was taken for a call is text, in which there may be another one behind the first character. */
  #wrong(): true {
    const text = this.#raw ?? "";
    this.#raw = null;
    this.#text(text.slice(0, 1));
    this.#held = text.slice(1) + this.#held;
    return this.#go("text");
  }

  #text(text: string, last = false): void {
    const all = this.#space + text;
    const shown = last && this.#calls === 0 ? all : all.trimEnd();
    this.#space = all.slice(shown.length);
    if (shown !== "") this.#events.push({ type: "text", text: shown });
  }

  /** Passes over so many characters of a call. */
  #pass(count: number): void {
    this.#raw = (this.#raw ?? "") + this.#held.slice(0, count);
    this.#held = this.#held.slice(count);
  }

  #start(): boolean {
    const bare = this.#held.replace(PYTHON, "").trimStart();
    if (BARE.test(bare)) {
      this.#pass(this.#held.length - bare.length);
      this.#after = "bare";
      return this.#open();
    }
    const maybe = this.#held.length < MAX_HELD && (MAYBE_BARE.test(bare) || PYTHON.startsWith(bare));
    return maybe ? false : this.#go("text");
  }

  #search(): boolean {
    const found = OPENERS.map((opener) => ({ opener, at: this.#held.indexOf(opener) })).filter(({ at }) => at >= 0);
    const first = found.sort((a, b) => a.at - b.at)[0];
    if (!first) {
      const sure = this.#held.length - openerAtEnd(this.#held);
      this.#text(this.#held.slice(0, sure));
      this.#held = this.#held.slice(sure);
      return false;
    }
    this.#text(this.#held.slice(0, first.at));
    this.#held = this.#held.slice(first.at);
    this.#after = first.opener === "<tool_call>" ? "tail" : "text";
    if (first.opener === "<function=") return this.#go("function");
    this.#pass(first.opener.length);
    return this.#go(first.opener === "<tool_call>" ? "tagged" : "marked");
  }

  /** Goes where the next character leads. */
  #choose(ways: Readonly<Record<string, Mode>>, after: Mode, otherwise?: Mode): boolean {
    this.#pass(this.#held.length - this.#held.trimStart().length);
    if (this.#held === "") return false;
    const way = ways[this.#held[0]!] ?? otherwise;
    if (!way) return this.#wrong();
    this.#after = way === "list" ? "list" : after;
    this.#afterList = after;
    if (way === "list") this.#pass(1);
    return way === "object" ? this.#open() : this.#go(way);
  }

  #open(): true {
    this.#object = new CallObject({
      begin: (name, id) => this.#begin(name, id),
      arguments: (text) => this.#events.push({ type: "arguments", index: this.#calls - 1, text }),
    });
    this.#raw ??= "";
    return this.#go("object");
  }

  #begin(name: string, id: string | undefined): boolean {
    if (!this.#names.has(name)) return false;
    this.#events.push({ type: "call", index: this.#calls++, id, name });
    this.#space = "";
    return true;
  }

  #read(): boolean {
    const held = this.#held;
    const reading = this.#object!.feed(held);
    this.#pass(reading === "done" ? this.#object!.read : held.length);
    if (this.#object!.begun) this.#raw = null;
    else if (reading === "wrong") return this.#wrong();
    return reading === "more" ? false : this.#go(this.#after);
  }

  /** Behind an object that has no mark: further ones may follow. */
  #bare(): boolean {
    const rest = this.#held.replace(/^[\s;]+/, "");
    if (rest === "") return false;
    if (rest[0] !== "{") return this.#go("text");
    this.#held = rest;
    return this.#open();
  }

  #list(): boolean {
    const rest = this.#held.replace(/^[\s,]+/, "");
    if (rest === "") return false;
    this.#held = rest;
    if (rest[0] === "{") return this.#open();
    if (rest[0] !== "]") return this.#wrong();
    this.#held = rest.slice(1);
    return this.#go(this.#afterList);
  }

  /** Everything up to the end of the mark is dropped: it is no text of the answer. */
  #rest(): boolean {
    const end = "</tool_call>";
    const at = this.#held.indexOf(end);
    if (at < 0) {
      this.#held = this.#held.slice(-end.length);
      return false;
    }
    this.#held = this.#held.slice(at + end.length);
    return this.#go("text");
  }

  #head(): boolean {
    const at = this.#held.indexOf("{");
    if (at < 0) return this.#held.length > MAX_HELD ? this.#wrong() : false;
    const [, name, id] = HEAD.exec(this.#held.slice(0, at).trim()) ?? [];
    this.#pass(at);
    if (name === undefined || !this.#begin(name, id || undefined)) return this.#wrong();
    this.#raw = null;
    this.#value = new JsonValue();
    return this.#go("arguments");
  }

  #arguments(): boolean {
    const end = this.#value.feed(this.#held, 0);
    const read = end < 0 ? this.#held.length : end;
    this.#events.push({ type: "arguments", index: this.#calls - 1, text: this.#held.slice(0, read) });
    this.#held = this.#held.slice(read);
    return end < 0 ? false : this.#go("text");
  }

  #function(): boolean {
    const [opener, end] = ["<function=", "</function>"];
    if (this.#tail === "") {
      if (!opener.startsWith(this.#held.slice(0, opener.length))) return this.#wrong();
      if (this.#held.length < opener.length) return false;
    }
    const seen = this.#tail + this.#held;
    const at = seen.indexOf(end);
    if (at < 0) {
      this.#tail = seen.slice(1 - end.length);
      this.#pass(this.#held.length);
      return false;
    }
    this.#pass(at + end.length - this.#tail.length);
    const whole = this.#raw!;
    const call = findCalls(whole.slice(whole.indexOf(opener)), this.#tools).toolCalls[0];
    if (!call || !this.#begin(call.name, call.id)) return this.#wrong();
    this.#raw = null;
    this.#events.push({ type: "arguments", index: this.#calls - 1, text: JSON.stringify(call.arguments) });
    return this.#go(this.#after);
  }
}

/** How many characters at the end may begin a call. */
function openerAtEnd(text: string): number {
  const longest = Math.min(text.length, Math.max(...OPENERS.map((opener) => opener.length)) - 1);
  for (let length = longest; length > 0; length--) {
    const end = text.slice(-length);
    if (OPENERS.some((opener) => opener.startsWith(end))) return length;
  }
  return 0;
}
