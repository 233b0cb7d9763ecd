/** Embeddings. */

import { readEmbedding, toBase64 } from "../../openai/embeddings.ts";
import { invalid } from "../../openai/errors.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import { inLanes, isQueueFull } from "../lanes.ts";

export function embeddingRoutes(app: App, core: Core): void {
  app.post("/v1/embeddings", async (c) => {
    const ask = readEmbedding(await core.asked(c.req.raw));
    const entry = c.get("entry");
    return core.work(c.req.raw, entry, ask.model, "input", async ({ model, name, adapters, signal }) => {
      const width = model.info.config.hidden;
      if (ask.dimensions !== null && ask.dimensions !== width)
        throw invalid("dimensions", `dimensions must be ${width}, which is the model's, or left out`);
      const ids: number[][] = [];
      for (const text of ask.input) ids.push(typeof text === "string" ? await model.tokenize(text) : [...text]);
      const empty = ids.findIndex((one) => one.length === 0);
      if (empty >= 0) throw invalid("input", `input[${empty}] has no tokens`);
      const embed = (some: number[][]) => model.embed(some, { adapters, signal });
      const rows = await embed(ids).catch(async (error) => {
        if (!isQueueFull(error)) throw error;
        // There are places for some of them at a time.
        const found: Float32Array[] = [];
        await inLanes(ids.length, async (i) => {
          [found[i]] = (await embed([ids[i]!])) as [Float32Array];
        });
        return found;
      });
      const tokens = ids.reduce((sum, one) => sum + one.length, 0);
      entry.record.promptTokens = tokens;
      const data = rows.map((row, index) => ({
        object: "embedding",
        index,
        embedding: ask.base64 ? toBase64(row) : [...row],
      }));
      return { json: { object: "list", data, model: name, usage: { prompt_tokens: tokens, total_tokens: tokens } } };
    });
  });
}
