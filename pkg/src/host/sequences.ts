/** How many requests are computed together. */

import type { Glue } from "../wasm/load.ts";

/** As in the option table. */
const MAX_SEQUENCES = 8;

/** What an engine makes of `maxSequences`: on a hybrid each request that runs has a state. */
export function sequences(engine: Glue["Engine"]["prototype"], asked = MAX_SEQUENCES): number {
  const states = engine.status()[6]!;
  return states > 0 ? Math.min(asked, states) : asked;
}
