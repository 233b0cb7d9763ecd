/** Questions that are longer than the context. */

import { EngineError } from "../types/errors.ts";
import type { ChatMessage, ChatOptions, Model } from "../types/index.ts";

/**
 * What is asked must fit by itself, with the system message: only what was said before may be left out. The engine would cut it.
 *
 * @param asked the question, behind the system message
 * @param options of the answer; those that do not shift refuse by themselves, and those that truncate want it cut
 */
export async function checkFits(model: Model, asked: readonly ChatMessage[], options: ChatOptions): Promise<void> {
  const { onContextFull, truncate = "none", tools, toolChoice, templateOptions, parseSpecialTokens } = options;
  if (onContextFull !== "shift" || truncate !== "none") return;
  const needed = await model.countTokens(asked, { tools, toolChoice, templateOptions, parseSpecialTokens });
  const most = model.info.contextLength - 1;
  if (needed <= most) return;
  const found = { expected: `at most ${most}`, found: String(needed) };
  throw new EngineError("ContextFull", `the message has ${needed} tokens: expected ${found.expected}`, found);
}
