/** Anthropic's interface. */

import { type ChatAsk, rendering } from "../../openai/ask.ts";
import { readCount, readMessages } from "../../openai/messages.ts";
import { answers } from "../answers.ts";
import { collect } from "../collect.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import { messageError, messageEvents, messageReply } from "../messages_reply.ts";
import { type Answering, headOf, run } from "./completions.ts";

export function messageRoutes(app: App, core: Core): void {
  app.post("/v1/messages", async (c) => {
    const body = await core.asked(c.req.raw);
    return run(c, core, body, readMessages(body), message);
  });
  app.post("/v1/messages/count_tokens", async (c) => {
    const { model, chat } = readCount(await core.asked(c.req.raw));
    return core.work(c.req.raw, c.get("entry"), model, "messages", async (work) => {
      return { json: { input_tokens: await work.model.countTokens(...rendering(chat)) } };
    });
  });
}

const message: Answering = async (ask, work, ids, onEnd) => {
  const head = headOf("msg", ids, work);
  const parts = answers(ask, { ...work, onEnd });
  if (!ask.stream) {
    const { choices, finished } = await collect(parts, head);
    return { json: messageReply(ask, head, choices[0]!, finished[0]!) };
  }
  const tokens = await work.model.countTokens(...rendering(ask.prompts[0] as ChatAsk));
  return {
    events: messageEvents(ask, parts, head, ids, tokens),
    failed: (error) => ({ event: "error", data: messageError(error) }),
  };
};
