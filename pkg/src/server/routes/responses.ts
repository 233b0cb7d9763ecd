/** OpenAI's responses, without any state. */

import { readResponses } from "../../openai/responses.ts";
import { answers } from "../answers.ts";
import { collect } from "../collect.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import { type Given, responseEvents, responseReply } from "../responses_reply.ts";
import { type Answering, headOf, run } from "./completions.ts";

export function responseRoutes(app: App, core: Core): void {
  app.post("/v1/responses", async (c) => {
    const body = await core.asked(c.req.raw);
    return run(c, core, body, readResponses(body, core.settings.defaultMaxTokens), respond(body as Given));
  });
}

const respond =
  (given: Given): Answering =>
  async (ask, work, ids, onEnd) => {
    const head = { ...headOf("resp", ids, work), id: `resp_${ids.identity.token}` };
    const parts = answers(ask, { ...work, onEnd });
    if (ask.stream) {
      const failed = ({ message, code, param }: { message: string; code: string | null; param: string | null }) => ({
        event: "error",
        data: { type: "error", code, message, param },
      });
      return { events: responseEvents(parts, { head, ids, given }), failed };
    }
    const { choices, finished } = await collect(parts, head);
    return { json: responseReply(head, given, choices[0]!, finished[0]!) };
  };
