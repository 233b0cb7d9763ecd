/** Reads `{"name": …, "arguments": …}` as it comes: the arguments go on as soon as the name is known. */

import { JsonValue } from "./json_value.ts";

export interface CallSink {
  /** The call begins. @returns whether there is such a tool */
  begin(name: string, id: string | undefined): boolean;
  /** A part of the arguments, as JSON. */
  arguments(text: string): void;
}

/** What became of the object: more of it is to come, it has ended, or it is no call. */
export type Reading = "more" | "done" | "wrong";

/** Where the object is: inside of a key or value, or before a sign. */
const SIGNS = { open: "{", colon: ":", next: ",", key: "", value: "" };

export class CallObject {
  readonly #sink: CallSink;
  #place: keyof typeof SIGNS = "open";
  #value = new JsonValue();
  /** What has come of the value or key at hand and was not passed on. */
  #kept = "";
  #key = "";
  /** The arguments are a text. */
  #quoted = false;
  #name: string | undefined;
  #id: unknown;
  /** Whether the call was told of. */
  begun = false;
  /** The arguments, where they came before the name. */
  #early: string | null = null;
  /** How much of the text given was read when the object ended. */
  read = 0;

  constructor(sink: CallSink) {
    this.#sink = sink;
  }

  /** Takes what comes next. */
  feed(text: string): Reading {
    for (let at = 0; ; ) {
      if (this.#place === "key" || this.#place === "value") {
        const end = this.#value.feed(text, at);
        if (!this.#take(text.slice(at, end < 0 ? text.length : end), end >= 0)) return "wrong";
        if (end < 0) return "more";
        at = end;
        this.#place = this.#place === "key" ? "colon" : "next";
      }
      while (at < text.length && /\s/.test(text[at]!)) at++;
      if (at === text.length) return "more";
      const char = text[at++]!;
      if (this.#place === "next" && char === "}") {
        this.read = at;
        return this.begun ? "done" : "wrong";
      }
      if (char !== SIGNS[this.#place]) return "wrong";
      this.#place = this.#place === "colon" ? "value" : "key";
      this.#value = new JsonValue();
      this.#kept = "";
    }
  }

  #take(part: string, ended: boolean): boolean {
    this.#kept += part;
    if (this.#place === "key") return !ended || this.#takeKey();
    if (this.#key === "arguments" || this.#key === "parameters") return this.#takeArguments(ended);
    if (!ended) return true;
    if (this.#key === "name") return this.#takeName();
    if (this.#key === "id") this.#id = parsed(this.#kept);
    return true;
  }

  #takeKey(): boolean {
    const key = parsed(this.#kept.trim());
    this.#key = String(key);
    return typeof key === "string";
  }

  #takeName(): boolean {
    const name = parsed(this.#kept.trim());
    if (typeof name !== "string") return false;
    this.#name = name;
    if (this.#early === null) return true;
    return this.#begin() && this.#pass(this.#early);
  }

  #takeArguments(ended: boolean): boolean {
    // Kept until its end, without looking at it again and again.
    if (this.#quoted && !ended) return true;
    const text = this.begun ? this.#kept : this.#kept.trimStart();
    if (text === "") return this.begun || !ended;
    if (text[0] === "{" || this.begun) {
      if (this.#name === undefined) {
        if (ended) this.#early = text;
        return true;
      }
      this.#kept = "";
      return (this.begun || this.#begin()) && this.#pass(text);
    }
    // Some models write them as a text of their own.
    if (text[0] !== '"') return false;
    this.#quoted = true;
    if (!ended) return true;
    const inner = parsed(text.trim());
    if (typeof inner !== "string" || !isObject(parsed(inner))) return false;
    if (this.#name !== undefined) return this.#begin() && this.#pass(inner);
    this.#early = inner;
    return true;
  }

  #begin(): boolean {
    this.begun = this.#sink.begin(this.#name!, typeof this.#id === "string" ? this.#id : undefined);
    return this.begun;
  }

  #pass(text: string): boolean {
    this.#sink.arguments(text);
    return true;
  }
}

const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
