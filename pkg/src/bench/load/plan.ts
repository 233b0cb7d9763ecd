/** What a load test asks, and when: everything follows from a seed, so that two runs ask the same. */

import { randomBits } from "../blocks.ts";

export interface LoadPlan {
  /** Requests a second, at random times (a Poisson process); absent where users ask again when they have their answer. */
  rps?: number;
  users?: number;
  /** How long requests are begun, in seconds. */
  duration: number;
  promptTokens: number;
  /** Texts that are asked in turn in place of made ones. */
  prompts?: readonly string[];
  maxTokens: number;
  /** How many short requests come for how many long ones; short ones have an eighth of the tokens. */
  mix?: readonly [short: number, long: number];
  /** Shares of requests that are broken off, and whose answers are read slowly. */
  abort: number;
  slow: number;
  seed: number;
}

export interface PlannedRequest {
  index: number;
  /** A text; null for one of `promptTokens` tokens that is made where it is asked. */
  text: string | null;
  promptTokens: number;
  maxTokens: number;
  seed: number;
  /** Pieces after which the client breaks off; null for one that does not. */
  abortAfter: number | null;
  slow: boolean;
}

const SHORTER = 8;
const WARM = 4;

/** Numbers from 0 to 1, of a request or of a plan. */
function fractions(seed: number, index: number): () => number {
  const bits = randomBits(seed ^ Math.imul(index + 1, 0x9e3779b1));
  // Seeds that are alike give first numbers that are alike.
  for (let i = 0; i < WARM; i++) bits();
  return () => (bits() + 0.5) / 2 ** 32;
}

/** The moments of requests in seconds, rising: the pauses between them are exponential, `rps` a second on average. */
export function* arrivals({ rps, duration, seed }: { rps: number; duration: number; seed: number }): Generator<number> {
  const fraction = fractions(seed, -1);
  const pause = () => -Math.log(fraction()) / rps;
  for (let at = pause(); at < duration; at += pause()) yield at;
}

export function request(plan: LoadPlan, index: number): PlannedRequest {
  const fraction = fractions(plan.seed, index);
  const [short, long] = plan.mix ?? [0, 1];
  const shorter = fraction() < short / (short + long) ? SHORTER : 1;
  const tokens = (most: number) => Math.max(1, Math.round(most / shorter));
  const maxTokens = tokens(plan.maxTokens);
  const aborts = fraction() < plan.abort;
  const abortAfter = 1 + Math.floor(fraction() * maxTokens);
  const { prompts } = plan;
  return {
    index,
    text: prompts ? prompts[index % prompts.length]! : null,
    promptTokens: tokens(plan.promptTokens),
    maxTokens,
    abortAfter: aborts ? abortAfter : null,
    slow: fraction() < plan.slow,
    seed: Math.floor(fraction() * 2 ** 31),
  };
}

/** Words that most tokenizers have as one token each. */
const WORDS =
  "the of and to in a is it you that he was for on are as with his they at be this from have or by one had not but".split(
    " ",
  );

/** A text of about so many tokens that no other request of the plan begins with. */
export function words({ promptTokens, seed, index }: PlannedRequest): string {
  const fraction = fractions(seed, index);
  return Array.from({ length: promptTokens }, () => WORDS[Math.floor(fraction() * WORDS.length)]).join(" ");
}
