/** What may change a request's logits before every choice: the worker's own hooks first, then the caller's. */

import type { ChooseEvent } from "../rpc/protocol.ts";

/** Changes `logits` in place, or returns others; `tokens` are all ids of the conversation. */
export type Hook = (
  logits: Float32Array,
  tokens: readonly number[],
) => Float32Array | undefined | Promise<Float32Array | undefined>;

export async function ask(hooks: readonly Hook[], logits: Float32Array, tokens: readonly number[]) {
  let changed = logits;
  for (const hook of hooks) changed = (await hook(changed, tokens)) ?? changed;
  return changed;
}

interface Asking {
  /** Set while an answer is awaited. */
  onSupply: ((logits: Float32Array) => void) | null;
  send(event: ChooseEvent, transfer: Transferable[]): void;
}

/** A hook on the owner's side, which answers with a `supply`. */
export function remote(context: Asking): Hook {
  return (logits, tokens) =>
    new Promise((resolve) => {
      context.onSupply = resolve;
      context.send({ logits, tokens: [...tokens] }, [logits.buffer as ArrayBuffer]);
    });
}
