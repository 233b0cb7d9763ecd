/** What a text completion answers: at once, or as events. Answers may begin with their prompts. */

import type { TokenTexts } from "../integration/tokens.ts";
import type { Ask } from "../openai/ask.ts";
import { completionChunk, completionReply, type Head, LogprobLists, timings, usage } from "../openai/replies.ts";
import type { Finished, Prompt, TokenLogprobs } from "../types/index.ts";
import type { Indexed } from "./answers.ts";
import { lastEvents, type StreamContext } from "./chat_events.ts";
import type { Collected } from "./collect.ts";
import { gathered } from "./gathered.ts";
import { inLanes } from "./lanes.ts";
import type { Work } from "./models.ts";
import type { Sent } from "./sse.ts";

/** A prompt that its answers begin with. */
export interface Echo {
  text: string;
  /** Its first token, which nothing comes before, and the log-probabilities of the others. */
  first?: number;
  logprobs?: TokenLogprobs[];
}

/** The prompts to begin with, and the ids that they were found to be. */
export async function echoes(ask: Ask, work: Work): Promise<{ echoes: Echo[]; ask: Ask }> {
  if (!ask.echo) {
    await work.hold(gathered(ask, work));
    return { echoes: [], ask };
  }
  const { model, adapters, signal } = work;
  const top = ask.options.logprobs;
  const found: Echo[] = [];
  const prompts: number[][] = [];
  // What is too much by its ids alone is not worth their texts.
  gathered(ask, work, sum(ask.prompts.filter((prompt) => typeof prompt !== "string") as number[][]));
  await inLanes(ask.prompts.length, async (i) => {
    const prompt = ask.prompts[i] as Prompt;
    const ids = typeof prompt === "string" ? await model.tokenize(prompt) : [...prompt];
    prompts[i] = ids;
    found[i] = { text: typeof prompt === "string" ? prompt : await model.detokenize(ids) };
  });
  await work.hold(gathered(ask, work, sum(prompts)));
  if (top !== undefined)
    await inLanes(prompts.length, async (i) => {
      const ids = prompts[i]!;
      if (ids.length === 0) return;
      const logprobs = await model.promptLogprobs(ids, { top, adapters, signal });
      found[i] = { ...found[i]!, first: ids[0]!, logprobs };
    });
  const learned = found.flatMap(({ first }) => (first === undefined ? [] : [first]));
  await work.tokens.learn(learned);
  return { echoes: found, ask: { ...ask, prompts } };
}

const sum = (lists: readonly ArrayLike<number>[]) => lists.reduce((total, { length }) => total + length, 0);

export async function completionAnswer(
  ask: Ask,
  { choices, finished }: Collected,
  prompts: readonly Echo[],
  { head, tokens }: { head: Head; tokens: TokenTexts },
) {
  const made = [];
  for (const [index, { text, logprobs, reason }] of choices.entries()) {
    const echo = prompts[Math.floor(index / ask.n)];
    const all = ask.options.logprobs === undefined ? null : [...(echo?.logprobs ?? []), ...(logprobs ?? [])];
    if (all) await tokens.learnLogprobs(all);
    const lists = all && new LogprobLists((id) => tokens.of(id)).lists(all, echo?.first);
    made.push({ text: (echo?.text ?? "") + text, logprobs: lists, reason });
  }
  return { ...completionReply(head, made), usage: usage(finished, ask.n), timings: timings(finished[0]!) };
}

export async function* completionEvents(
  ask: Ask,
  parts: AsyncIterable<Indexed>,
  prompts: readonly Echo[],
  { head, ids, tokens }: StreamContext,
): AsyncGenerator<Sent, undefined> {
  const finished: Finished[] = [];
  const lists = new Map<number, LogprobLists>();
  const more = ask.includeUsage ? { usage: null } : {};
  const made = (index: number, text: string, rest = {}, extra = {}): Sent[] => {
    const next = ids.next(index);
    return next ? [{ ...next, data: { ...completionChunk(head, index, text, rest), ...more, ...extra } }] : [];
  };
  const listed = async (index: number, logprobs: TokenLogprobs[] | undefined, first?: number) => {
    if (!logprobs) return {};
    await tokens.learnLogprobs(logprobs);
    return { logprobs: lists.get(index)!.lists(logprobs, first) };
  };
  for await (const { index, part } of parts) {
    if (!lists.has(index)) {
      lists.set(index, new LogprobLists((id) => tokens.of(id)));
      const echo = prompts[Math.floor(index / ask.n)];
      if (echo) yield* made(index, echo.text, await listed(index, echo.logprobs, echo.first));
    }
    if (part.type === "end") {
      finished[index] = part.finished;
      yield* made(index, "", { reason: part.reason }, { timings: timings(part.finished) });
    } else if (part.type === "text" && (part.text !== "" || part.logprobs)) {
      yield* made(index, part.text, await listed(index, part.logprobs));
    }
  }
  yield* lastEvents(ask, head, "text_completion", finished, ids);
}
