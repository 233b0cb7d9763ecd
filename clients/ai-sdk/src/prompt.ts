/** The AI SDK's prompts as messages of a chat template. */

import {
  type LanguageModelV3FilePart,
  type LanguageModelV3Message,
  type LanguageModelV3Prompt,
  type LanguageModelV3ToolResultPart,
  UnsupportedFunctionalityError,
} from "@ai-sdk/provider";
import type { ChatMessage } from "ternlight";

export const toMessages = (prompt: LanguageModelV3Prompt): ChatMessage[] => prompt.flatMap(toMessage);

type Of<Role extends string> = Extract<LanguageModelV3Message, { role: Role }>;

function toMessage(message: LanguageModelV3Message): ChatMessage[] {
  switch (message.role) {
    case "system":
      return [{ role: "system", content: message.content }];
    case "user":
      return [
        {
          role: "user",
          content: message.content.map((part) => (part.type === "text" ? part.text : textOf(part))).join(""),
        },
      ];
    case "assistant":
      return fromAssistant(message.content);
    case "tool":
      // Answers to questions of approval say nothing to the model: a call that was denied has a result that does.
      return message.content.flatMap((part) => (part.type === "tool-result" ? [toResult(part)] : []));
  }
}

/** Results that stand in an assistant's message are messages of their own behind it. What a model thought is left out. */
function fromAssistant(content: Of<"assistant">["content"]): ChatMessage[] {
  let text = "";
  const calls: object[] = [];
  const results: ChatMessage[] = [];
  for (const part of content) {
    if (part.type === "text") text += part.text;
    else if (part.type === "tool-result") results.push(toResult(part));
    else if (part.type === "file") throw unsupported(part);
    else if (part.type === "tool-call") {
      const { toolCallId: id, toolName: name, input } = part;
      calls.push({ id, type: "function", function: { name, arguments: input ?? {} } });
    }
  }
  return [{ role: "assistant", content: text, ...(calls.length > 0 && { tool_calls: calls }) }, ...results];
}

function toResult({ toolCallId, toolName, output }: LanguageModelV3ToolResultPart): ChatMessage {
  return { role: "tool", name: toolName, tool_call_id: toolCallId, content: said(output) };
}

function said(output: LanguageModelV3ToolResultPart["output"]): string {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "json":
    case "error-json":
      return JSON.stringify(output.value);
    case "execution-denied":
      return `The call was denied${output.reason ? `: ${output.reason}` : "."}`;
    case "content":
      return output.value
        .map((part) => {
          if (part.type === "text") return part.text;
          throw new UnsupportedFunctionalityError({ functionality: `tool results of type ${part.type}` });
        })
        .join("");
  }
}

/** Files of text are read; anything else is refused, for the models have no eyes. */
function textOf(part: LanguageModelV3FilePart): string {
  const { data, mediaType } = part;
  if (!/^(text\/|application\/(json|xml|yaml|x-yaml)\b)/.test(mediaType) || data instanceof URL)
    throw unsupported(part);
  const bytes = typeof data === "string" ? Uint8Array.from(atob(data), (char) => char.charCodeAt(0)) : data;
  return new TextDecoder().decode(bytes);
}

const unsupported = ({ mediaType }: LanguageModelV3FilePart) =>
  new UnsupportedFunctionalityError({
    functionality: `files of type ${mediaType}`,
    message: `The model reads text, and no files of type ${mediaType}.`,
  });
