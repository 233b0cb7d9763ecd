/** Warming up: enough work for the runtime's compilers to optimise what prompts and single tokens need. */

import type { ModelInfo } from "../types/index.ts";
import type { EngineWork } from "./events.ts";
import type { HostState } from "./state.ts";

/** Compilers in the background need about so long for all the functions that a token needs. */
export const WARMUP_MS = 300;
export const MAX_ROUNDS = 64;

/**
 * A prompt and some steps, long enough for the kernels of prompts and of single tokens. A small model does that in a few milliseconds, so
 * rounds repeat until the compilers have had time for its functions too. No block of the KV cache becomes full, so that none is kept.
 */
export function warmupRound({ vocab, contextLength }: ModelInfo): { ids: number[]; work: EngineWork } {
  const ids = Array.from({ length: Math.min(24, Math.ceil(contextLength / 2)) }, (_, i) => i % vocab);
  return { ids, work: { type: "generate", maxTokens: 7, end: [], full: 0 } };
}

/** Of a hybrid's session it keeps no states, which others would not use. */
export const EPHEMERAL = true;

/** Of all threads together: what a warm-up behind a load may take. */
const MAX_MS = 500;
/** Of one step, after which messages are read. */
const STEP_MS = 2;

/** The warm-up behind a load. It ends at the first call that concerns the engine. */
export class IdleWarmup {
  readonly #state: HostState;
  #session: number | null = null;
  #over = false;

  constructor(state: HostState) {
    this.#state = state;
    // A defect of the engine is reported by the request that meets it.
    this.#run().catch(() => (this.#session = null));
  }

  stop(): void {
    this.#over = true;
    if (this.#session !== null) this.#state.model.engine.close(this.#session);
    this.#session = null;
  }

  async #run(): Promise<void> {
    const { model, platform } = this.#state;
    const { engine, info } = model;
    // A prompt of the load goes first.
    while (engine.busy() && !this.#over) await platform.turn();
    const { ids, work } = warmupRound(info);
    for (let spent = 0; spent * info.threads < MAX_MS && !this.#over; await platform.turn()) {
      if (this.#session === null) {
        this.#session = engine.open(EPHEMERAL);
        engine.submit(this.#session, Uint32Array.from(ids), work);
      }
      const begun = performance.now();
      engine.step(STEP_MS);
      spent += performance.now() - begun;
      if (engine.busy()) continue;
      engine.close(this.#session);
      this.#session = null;
    }
    this.stop();
  }
}
