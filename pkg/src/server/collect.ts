/** Gathers the parts of answers into whole ones. */

import { type Choice, callId, type Head } from "../openai/replies.ts";
import type { Finished } from "../types/index.ts";
import type { Indexed } from "./answers.ts";

export interface Collected {
  choices: Choice[];
  finished: Finished[];
}

export async function collect(parts: AsyncIterable<Indexed>, head: Head): Promise<Collected> {
  const choices: Choice[] = [];
  const finished: Finished[] = [];
  for await (const { index, part } of parts) {
    choices[index] ??= { text: "", calls: [], logprobs: null, reason: "stop" };
    const choice = choices[index]!;
    if (part.type === "text") {
      choice.text += part.text;
      if (part.logprobs) {
        choice.logprobs ??= [];
        choice.logprobs.push(...part.logprobs);
      }
    } else if (part.type === "call") {
      const id = part.id ?? callId(head, index, part.call);
      choice.calls[part.call] = { id, type: "function", function: { name: part.name, arguments: "" } };
    } else if (part.type === "arguments") {
      choice.calls[part.call]!.function.arguments += part.text;
    } else {
      choice.reason = part.reason;
      finished[index] = part.finished;
    }
  }
  return { choices, finished };
}
