/** Calls of tools in an answer that has ended: whole ones, and those that are cut off. */

import { AIMessageChunk, type AIMessageChunkFields } from "@langchain/core/messages";
import type { InvalidToolCall, ToolCall, ToolCallChunk } from "@langchain/core/messages/tool";
import { OutputParserException } from "@langchain/core/output_parsers";
import { JsonOutputKeyToolsParser } from "@langchain/core/output_parsers/openai_tools";
import type { ChatGeneration } from "@langchain/core/outputs";

export type Call = Pick<ToolCallChunk, "id" | "name" | "args">;

interface Calls {
  tool_calls: ToolCall[];
  invalid_tool_calls: InvalidToolCall[];
}

/** Tells the calls that can be made from those whose arguments are cut off. */
export function readCalls(calls: readonly Call[]): Calls {
  const read: Calls = { tool_calls: [], invalid_tool_calls: [] };
  for (const { id, name = "", args = "" } of calls) {
    try {
      read.tool_calls.push({ ...(id && { id }), name, args: JSON.parse(args), type: "tool_call" });
    } catch (cause) {
      const error = `the arguments of ${name} are no whole JSON: ${(cause as Error).message}`;
      read.invalid_tool_calls.push({ ...(id && { id }), name, args, error, type: "invalid_tool_call" });
    }
  }
  return read;
}

/**
 * A part of an answer, or all of its parts so far, as LangChain joins them. Arguments that break off are read as far as they go while the
 * answer is written, which is LangChain's way; at its end such a call is none.
 */
export class AnswerChunk extends AIMessageChunk {
  constructor(fields: AIMessageChunkFields) {
    super(fields);
    if (hasEnded(this) && this.tool_call_chunks?.length) Object.assign(this, readCalls(this.tool_call_chunks));
  }
}

const hasEnded = ({ response_metadata: { finish_reason: reason } }: AIMessageChunk) => reason !== undefined;

/** Reads the result from a call. An answer without a whole one is an error; LangChain's own parser has `undefined` for it. */
export class CallParser<T extends object> extends JsonOutputKeyToolsParser<T> {
  override parseResult(generations: ChatGeneration[]): Promise<T> {
    refuseCut(generations);
    return super.parseResult(generations);
  }

  override parsePartialResult(generations: ChatGeneration[]): Promise<T> {
    refuseCut(generations);
    return super.parsePartialResult(generations);
  }
}

function refuseCut([generation]: ChatGeneration[]): void {
  const message = generation!.message as AIMessageChunk;
  if (!hasEnded(message) || message.tool_calls?.length) return;
  const [cut] = message.invalid_tool_calls ?? [];
  const reason = message.response_metadata.finish_reason;
  const problem = cut?.error ?? `the answer ended before the arguments of its call, with finish_reason "${reason}"`;
  throw new OutputParserException(problem, cut?.args ?? message.text);
}
