/** Turns of a chat, which are left out as wholes where a context has no room for them. */

import type { ChatMessage } from "../types/index.ts";

/** How many messages the conversation begins with that are never left out. */
function leading(messages: readonly ChatMessage[]): number {
  const first = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  return first < 0 ? messages.length : first;
}

/**
 * How many of the oldest messages may be left out: some numbers, in rising order, each of which ends a turn, and the last of which
 * leaves the last turn alone. A turn begins with a user's message. They are about a quarter of a context apart, counted from the
 * beginning, so that a conversation that grows loses nothing at most calls, and what was computed of it stays.
 */
export function cuts(messages: readonly ChatMessage[], context: number): number[] {
  const start = leading(messages);
  const found: number[] = [];
  let [length, quarters, last] = [0, 0, 0];
  for (let at = start + 1; at < messages.length; at++) {
    // Four characters are about a token.
    length += JSON.stringify(messages[at - 1]).length;
    if (messages[at]!.role !== "user") continue;
    last = at - start;
    if (length < (quarters + 1) * context) continue;
    quarters = Math.floor(length / context);
    found.push(last);
  }
  if (last > (found.at(-1) ?? 0)) found.push(last);
  return found;
}

/** All messages but so many of the oldest. */
export function without(messages: ChatMessage[], count: number): ChatMessage[] {
  const start = leading(messages);
  return count === 0 ? messages : [...messages.slice(0, start), ...messages.slice(start + count)];
}
