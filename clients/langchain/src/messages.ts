/** LangChain's messages as those of a chat template. */

import { type BaseMessage, isAIMessage, isToolMessage, type MessageContent } from "@langchain/core/messages";
import type { ChatMessage, Model } from "ternlight";

const ROLES: Readonly<Record<string, string>> = {
  human: "user",
  ai: "assistant",
  system: "system",
  developer: "developer",
  tool: "tool",
};

export function toMessage(message: BaseMessage): ChatMessage {
  const type = message.getType();
  const role = ROLES[type] ?? (message as { role?: string }).role ?? type;
  if (isToolMessage(message)) {
    const { tool_call_id, name } = message;
    return { role, content: textsOf(message), tool_call_id, ...(name && { name }) };
  }
  if (!isAIMessage(message)) return { role, content: textsOf(message) };
  const calls = message.tool_calls?.map(({ id, name, args }) => ({
    id,
    type: "function",
    function: { name, arguments: args },
  }));
  // Of what a model has said, its text and its calls count: what it thought, and calls as parts, are left out.
  return { role, content: message.text, ...(calls?.length && { tool_calls: calls }) };
}

/** A text, or parts: the engine joins those of text and refuses others by their type. */
function textsOf({ content }: BaseMessage): ChatMessage["content"] {
  if (typeof content === "string") return content;
  return content as unknown as ChatMessage["content"];
}

/** The tokens of a text, or of a message's parts of text, by the model's own tokenizer: LangChain's would be fetched from a server. */
export function tokensOf(model: Model, content: MessageContent): Promise<number> {
  const textOf = (part: Exclude<MessageContent, string>[number]) => (part.type === "text" ? String(part.text) : "");
  const text = typeof content === "string" ? content : content.map(textOf).join("");
  return model.countTokens(text, { addSpecial: false });
}
