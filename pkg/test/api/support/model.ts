/** The demo model through the built package. */

import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { EngineError, type Generation, type LoadOptions, load, type Model, type Piece } from "ternlight";

export const DEMO = new URL("../../../models/ternlight-demo/", import.meta.url);

/** "Once upon a time", and how the model most likely goes on. */
export const ONCE = [2343, 821, 259, 522];
export const GREEDY = { temperature: 0, maxTokens: 12 } as const;
export const CONTINUATION = {
  tokens: [441, 1113, 259, 477, 443, 336, 259, 976, 270, 259, 976, 14],
  text: " there lived a man who had a wife and a wife.",
};

/** One thread is enough for a model this small; closed when the test ends. */
export async function demo(context: TestContext, options: LoadOptions = {}): Promise<Model> {
  const model = await load(DEMO, { threads: 1, ...options });
  context.after(() => model.close());
  return model;
}

export async function pieces(generation: AsyncIterable<Piece>): Promise<Piece[]> {
  const all: Piece[] = [];
  for await (const piece of generation) all.push(piece);
  return all;
}

export const textOf = (all: readonly Piece[]): string => all.map(({ text }) => text).join("");
export const tokensOf = (all: readonly Piece[]): number[] => all.flatMap(({ tokens }) => tokens);

/** What a promise is rejected with. */
export async function reason(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("it was not rejected");
}

/** The typed error that something ends with. */
export async function failure(work: () => unknown): Promise<EngineError> {
  const error = await reason(Promise.resolve().then(work));
  assert.ok(error instanceof EngineError, `not a typed error: ${(error as Error).stack}`);
  return error;
}

/** Resolves with a generation's first piece; the rest keeps coming. */
export async function begun(generation: Generation): Promise<AsyncIterator<Piece>> {
  const iterator = generation[Symbol.asyncIterator]();
  assert.equal((await iterator.next()).done, false);
  return iterator;
}
