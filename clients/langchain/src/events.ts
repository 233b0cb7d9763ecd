/** An answer as the events of content blocks that `streamEvents` gives as version 3. */

import type { UsageMetadata } from "@langchain/core/messages";
import type { Finished } from "ternlight";
import { type AnswerPart, randomId } from "ternlight/integration";
import { type Call, readCalls } from "./calls.ts";
import { metadataOf, usageOf } from "./options.ts";

type Text = { type: "text"; text: string };
type CallChunk = Call & { type: "tool_call_chunk"; index: number };
/** A call, or one whose arguments are cut off, with the reason. */
type EndedCall = { type: string; id?: string; name: string; args: unknown; error?: string };
type Delta = { type: "text-delta"; text: string } | { type: "tool-call-delta"; args: string };

/** Written out, as versions of LangChain without these events have no types for them. */
export type AnswerEvent =
  | { event: "message-start" }
  | { event: "content-block-start"; index: number; content: Text | CallChunk }
  | { event: "content-block-delta"; index: number; delta: Delta }
  | { event: "content-block-finish"; index: number; content: Text | EndedCall }
  | {
      event: "message-finish";
      reason: "stop" | "length" | "tool_use";
      usage: UsageMetadata;
      responseMetadata: Record<string, unknown>;
    };

/** @param name of the model. LangChain's own bridge takes a text and the call behind it for one block, and every end for `stop`. */
export async function* eventsOf(parts: AsyncIterable<AnswerPart>, name: string): AsyncGenerator<AnswerEvent> {
  yield { event: "message-start" };
  const blocks: (Text | CallChunk)[] = [];
  const calls: CallChunk[] = [];
  const begin = (content: Text | CallChunk): AnswerEvent => {
    blocks.push(content);
    // A block of its own: what is told goes on to change here.
    return { event: "content-block-start", index: blocks.length - 1, content: { ...content } };
  };
  let text: Text | null = null;
  for await (const part of parts) {
    if (part.type === "end") {
      yield* ends(blocks, part.finished, name);
    } else if (part.type === "call") {
      const id = part.id ?? randomId("call");
      const call: CallChunk = { type: "tool_call_chunk", index: blocks.length, id, name: part.name, args: "" };
      calls[part.call] = call;
      yield begin(call);
    } else if (part.type === "arguments") {
      const call = calls[part.call]!;
      call.args += part.text;
      yield { event: "content-block-delta", index: call.index, delta: { type: "tool-call-delta", args: part.text } };
    } else if (part.text !== "") {
      if (!text) {
        text = { type: "text", text: "" };
        yield begin(text);
      }
      text.text += part.text;
      const index = blocks.indexOf(text);
      yield { event: "content-block-delta", index, delta: { type: "text-delta", text: part.text } };
    }
  }
}

function* ends(blocks: readonly (Text | CallChunk)[], finished: Finished, name: string): Generator<AnswerEvent> {
  let calls = 0;
  for (const [index, block] of blocks.entries()) {
    if (block.type === "text") {
      yield { event: "content-block-finish", index, content: block };
      continue;
    }
    calls++;
    const { tool_calls, invalid_tool_calls } = readCalls([block]);
    yield { event: "content-block-finish", index, content: (tool_calls[0] ?? invalid_tool_calls[0]) as EndedCall };
  }
  const reason = finished.finishReason === "length" ? "length" : calls > 0 ? "tool_use" : "stop";
  const responseMetadata = metadataOf(name, finished, calls);
  yield { event: "message-finish", reason, usage: usageOf(finished), responseMetadata };
}
