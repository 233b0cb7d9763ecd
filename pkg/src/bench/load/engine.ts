/** A model in this process as the target of a load test. */

import type { Model } from "../../types/index.ts";
import { randomBits } from "../blocks.ts";
import type { PlannedRequest } from "./plan.ts";
import { type Answered, Refused, type Target } from "./run.ts";

export function engineTarget(model: Model, processBytes: () => number | null): Target {
  return {
    async ask(planned: PlannedRequest, signal: AbortSignal, onPiece: () => Promise<void>): Promise<Answered> {
      const { text, promptTokens, maxTokens, seed } = planned;
      const bits = randomBits(seed);
      const prompt = text ?? Array.from({ length: promptTokens }, () => bits() % model.info.vocab);
      const generation = model.generate(prompt, { seed, maxTokens, temperature: 0.8, ignoreEos: true, signal });
      try {
        for await (const { tokens } of generation) if (tokens.length > 0) await onPiece();
      } catch (error) {
        if ((error as { code?: string }).code === "QueueFull") throw new Refused((error as Error).message);
        throw error;
      }
      const { tokens, promptTokens: fed } = await generation.finished;
      return { tokens: tokens.length, promptTokens: fed.length };
    },
    usage: async () => ({ wasmBytes: (await model.status()).memoryBytes, processBytes: processBytes() }),
  };
}
