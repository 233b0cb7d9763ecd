/** What one response, and all of them together, may gather in memory of log-probabilities, of which a token has up to 21. */

import type { Ask } from "../openai/ask.ts";
import { invalid } from "../openai/errors.ts";
import type { Work } from "./models.ts";

/** Log-probabilities of one response: some 100 MB on their way to a text. */
export const MAX_GATHERED = 2 ** 19;
/** Of all responses that are made at once. */
export const MAX_HELD = 2 ** 20;

/**
 * Log-probabilities of a response at most; too many are refused.
 *
 * @param prompts tokens of prompts whose log-probabilities are reported
 */
export function gathered(ask: Ask, { model }: Work, prompts = 0): number {
  const { logprobs: top, maxTokens = Infinity } = ask.options;
  if (top === undefined) return 0;
  // A stream hands on those of its answers, and repeats those of a prompt for each of them without keeping the text.
  const answers = ask.stream ? 0 : ask.prompts.length * ask.n * Math.min(maxTokens, model.info.contextLength);
  const count = (prompts * (ask.stream ? 1 : ask.n) + answers) * (1 + top);
  if (count <= MAX_GATHERED) return count;
  const way = "ask for fewer tokens or prompts, or for a stream";
  throw invalid("logprobs", `there would be ${count} log-probabilities; ${MAX_GATHERED} are allowed: ${way}`);
}
