/** A model that answers lines of batches. */

import { createApp, LineAnswers, type Loader } from "../server/serving.ts";
import type { Model } from "../types/index.ts";
import { type AnswerOptions, type Facts, identified, tokensOf } from "./identity.ts";
import { MAX_LINE } from "./rows.ts";

/** No line is refused for want of a place: workers have as many under way as they were told. */
const MAX_REQUESTS = 65_536;

export interface Answerer {
  lines: LineAnswers;
  /** Of all that its answers depend on beside the lines. */
  identity: string;
  /** What the identity is of, for people. */
  facts: Facts;
  /** The model's, as its answers have it. */
  name: string;
  close(): Promise<void>;
}

/** @param load loads the model, and loads it again where its worker has died */
export async function openAnswerer(load: Loader, options: AnswerOptions): Promise<Answerer> {
  const { name, defaultMaxTokens, version } = options;
  let first: Model | null = await load({ signal: new AbortController().signal, onProgress() {} });
  try {
    const { identity, facts } = await identified(first, options);
    const loader: Loader = async (more) => {
      const model = first ?? (await load(more));
      first = null;
      return model;
    };
    const limits = { maxRequests: MAX_REQUESTS, maxBody: 2 * MAX_LINE, defaultMaxTokens };
    const app = createApp({ models: { [name]: loader }, ...limits }, version);
    await app.ready;
    const lines = new LineAnswers({ fetch: app.fetch, model: name, tokenOf: tokensOf(identity) });
    return { lines, identity, facts, name, close: () => app.close() };
  } catch (error) {
    await first?.close();
    throw error;
  }
}
