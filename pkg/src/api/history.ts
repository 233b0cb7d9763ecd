/** The messages of a session's chat, and what a saved session says of them. */

import { checkMessages } from "../options/options.ts";
import { show } from "../options/show.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage, Finished } from "../types/index.ts";

/** So many messages there were when the session held so many ids. */
type Mark = [messages: number, held: number];

export class History {
  /** null where the session holds what is in no message. */
  messages: readonly ChatMessage[] | null = [];
  #marks: readonly Mark[] = [];

  /** The whole conversation: new messages behind those that are known, or one that begins with them. */
  joined(given: ChatMessage[]): ChatMessage[] {
    const { messages } = this;
    if (!messages) {
      const message = "chat: the session holds what generate() or another program gave it, which is in no message";
      throw new EngineError("InvalidArgument", `${message}: open another session`, { option: "messages" });
    }
    const at = messages.findIndex((message, i) => !same(message, given[i]));
    if (at < 0) {
      // Another answer behind the answer would be nobody's turn.
      if (given.length > messages.length || given.at(-1)?.role !== "assistant") return given;
      const message = "chat: no message behind the session's answer: give one, or rewind() first";
      throw new EngineError("InvalidArgument", message, { option: "messages" });
    }
    if (!given.some(({ role }) => role === "assistant" || isSystem(role))) return [...messages, ...given];
    const [expected, found] = [told(messages[at]), told(given[at])];
    throw new EngineError(
      "InvalidArgument",
      `chat: messages[${at}] contradicts the session: expected ${expected}, found ${found}; give new messages alone, or all as session.messages has them`,
      { option: "messages", message: at, expected, found },
    );
  }

  /** What was asked is answered. */
  keep(asked: readonly ChatMessage[], finished: Finished, held: number): void {
    const before = held - finished.tokens.length;
    const earlier = finished.droppedMessages ? [] : this.#marks.filter(([, at]) => at < before);
    this.#marks = [...earlier, [asked.length, before], [asked.length + 1, held]];
    this.messages = [...asked, answered(finished)];
  }

  /** The session goes on with what is in no message. */
  lose(): void {
    this.messages = null;
  }

  /** The session holds no more than this. */
  rewind(held: number): void {
    this.#marks = this.#marks.filter(([, at]) => at <= held);
    if (held === 0) this.messages = [];
    this.messages &&= this.messages.slice(0, this.#marks.at(-1)?.[0] ?? 0);
  }

  copy(): History {
    const copy = new History();
    copy.messages = this.messages;
    copy.#marks = this.#marks;
    return copy;
  }

  /** A saved session with its messages: behind the engine's bytes JSON, its length, its checksum and a mark. */
  with(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    if (!this.messages?.length) return bytes;
    const note = new TextEncoder().encode(JSON.stringify([this.messages, this.#marks]));
    const all = new Uint8Array(bytes.length + note.length + TAIL);
    all.set(bytes);
    all.set(note, bytes.length);
    const view = new DataView(all.buffer, all.length - TAIL);
    for (const [i, number] of [note.length, checksum(note), MARK].entries()) view.setUint32(4 * i, number);
    return all;
  }

  /** The engine's part of a saved session, and its messages. What is damaged is left to the engine, which refuses its length. */
  static split(bytes: Uint8Array): { bytes: Uint8Array; history: History } {
    const history = new History();
    history.messages = null;
    const end = bytes.length - TAIL;
    if (end < 0) return { bytes, history };
    const view = new DataView(bytes.buffer, bytes.byteOffset + end);
    const begin = end - view.getUint32(0);
    const note = bytes.subarray(Math.max(0, begin), end);
    if (view.getUint32(8) !== MARK || begin < 0 || view.getUint32(4) !== checksum(note)) return { bytes, history };
    const [messages, marks] = JSON.parse(new TextDecoder().decode(note));
    history.messages = checkMessages("restoreSession", messages);
    history.#marks = marks;
    return { bytes: bytes.subarray(0, begin), history };
  }
}

const TAIL = 12;
const MARK = 0x43484154;

/** FNV-1a. */
const checksum = (bytes: Uint8Array) =>
  bytes.reduce((hash, byte) => Math.imul(hash ^ byte, 16777619), 0x811c9dc5) >>> 0;

const isSystem = (role: string) => role === "system" || role === "developer";

/** Whether a caller repeats a message: blanks around it do not count, and calls of tools may be spelled in any way. */
function same(own: ChatMessage, given: ChatMessage | undefined): boolean {
  if (own.role !== given?.role) return false;
  return "tool_calls" in own || String(own.content ?? "").trim() === String(given.content ?? "").trim();
}

const told = (message: ChatMessage | undefined) =>
  message ? `${message.role} ${show(message.content)}` : "no message";

/** Calls as templates take them. */
function answered({ text, toolCalls = [] }: Finished): ChatMessage {
  const role = "assistant";
  if (toolCalls.length === 0) return { role, content: text };
  const tool_calls = toolCalls.map(({ id, ...call }) => ({ ...(id && { id }), type: "function", function: call }));
  // Models may say something before their calls.
  const [before, ...calls] = text.split(/<tool_call>|\[TOOL_CALLS\]|<function=/);
  return { role, content: calls.length > 0 ? before!.trim() : "", tool_calls };
}
