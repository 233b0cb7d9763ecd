/** Chat and text completions. */

import { type Ask, repeats } from "../../openai/ask.ts";
import { readChat } from "../../openai/chat.ts";
import { readCompletion } from "../../openai/completions.ts";
import { chatReply, type Head, timings, usage } from "../../openai/replies.ts";
import type { Finished } from "../../types/index.ts";
import { answers } from "../answers.ts";
import { chatEvents } from "../chat_events.ts";
import { collect } from "../collect.ts";
import { completionAnswer, completionEvents, echoes } from "../completion_events.ts";
import type { Core, Outcome } from "../core.ts";
import type { App, AppContext } from "../env.ts";
import { gathered } from "../gathered.ts";
import type { Work } from "../models.ts";
import { EventIds } from "../resume.ts";
import { failedEvent } from "../sse.ts";
import { measurements } from "../trace.ts";

export function completionRoutes(app: App, core: Core): void {
  const { defaultMaxTokens } = core.settings;
  app.post("/v1/chat/completions", async (c) => {
    const body = await core.asked(c.req.raw);
    return run(
      c,
      core,
      body,
      readChat(body, defaultMaxTokens, (name) => core.models.find(name)),
      chat,
    );
  });
  app.post("/v1/completions", async (c) => {
    const body = await core.asked(c.req.raw);
    return run(c, core, body, readCompletion(body, defaultMaxTokens), completion);
  });
}

export type Answering = (ask: Ask, work: Work, ids: EventIds, onEnd: (finished: Finished) => void) => Promise<Outcome>;

/** Answers a request that asks for completions. */
export function run(c: AppContext, core: Core, body: unknown, ask: Ask, answering: Answering): Promise<Response> {
  const entry = c.get("entry");
  const { record } = entry;
  const { onTelemetry } = core.settings;
  const request = c.req.raw;
  const answered = async (work: Work) => {
    const { fingerprint, slot } = work;
    const count = ask.prompts.length * ask.n;
    const ids = EventIds.of(request, { body, fingerprint, answers: count, repeats: repeats(ask) });
    const onEnd = (finished: Finished) => {
      slot.pace.note(finished);
      if (onTelemetry) {
        const { traceId, spanId, sampled } = record;
        const trace = traceId === undefined ? undefined : { traceId, spanId: spanId!, sampled: sampled! };
        const operation = record.path.endsWith("/v1/completions") ? "text_completion" : "chat";
        for (const one of measurements(finished, { model: ask.model, operation, trace })) onTelemetry(one);
      }
      record.promptTokens = (record.promptTokens ?? 0) + finished.promptTokens.length;
      record.completionTokens = (record.completionTokens ?? 0) + finished.tokens.length;
    };
    return answering(ask, work, ids, onEnd);
  };
  return core.work(request, entry, ask.model, ask.param, answered, ask.format);
}

export const headOf = (
  prefix: string,
  { identity: { token, created } }: EventIds,
  { name, fingerprint }: Work,
): Head => ({
  id: `${prefix}-${token}`,
  created,
  model: name,
  fingerprint,
});

const chat: Answering = async (ask, work, ids, onEnd) => {
  const head = headOf("chatcmpl", ids, work);
  const { tokens } = work;
  await work.hold(gathered(ask, work));
  const parts = answers(ask, { ...work, onEnd });
  if (ask.stream) return { events: chatEvents(ask, parts, { head, ids, tokens }), failed: failedEvent };
  const { choices, finished } = await collect(parts, head);
  for (const { logprobs } of choices) if (logprobs) await tokens.learnLogprobs(logprobs);
  const reply = chatReply(head, choices, (id) => tokens.of(id));
  return { json: { ...reply, usage: usage(finished, ask.n), timings: timings(finished[0]!) } };
};

const completion: Answering = async (given, work, ids, onEnd) => {
  const head = headOf("cmpl", ids, work);
  const { tokens } = work;
  const { echoes: prompts, ask } = await echoes(given, work);
  const parts = answers(ask, { ...work, onEnd });
  if (ask.stream) return { events: completionEvents(ask, parts, prompts, { head, ids, tokens }), failed: failedEvent };
  return { json: await completionAnswer(ask, await collect(parts, head), prompts, { head, tokens }) };
};
