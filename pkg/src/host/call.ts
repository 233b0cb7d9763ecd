/** What a verb's handler is: a function of the host's state, the call's arguments and the call's context. */

import type { VerbName, Verbs } from "../rpc/protocol.ts";
import type { HostState } from "./state.ts";

/** What one call may do while it runs, and how the owner reaches it. */
export interface CallContext<V extends VerbName> {
  /** Aborts when the owner no longer waits for the answer. */
  signal: AbortSignal;
  /** Set by a generation that can be ended early. */
  onStop: (() => void) | null;
  /** The owner ended the generation before it began. */
  stopped?: boolean;
  /** Set by a generation that pauses for its reader: hears how many pieces were read so far. */
  onRead: ((pieces: number) => void) | null;
  /** Pieces that the owner's reader had read before the generation began: all those to come, where nobody reads them. */
  read?: number;
  /** Set by a generation that waits for logits to choose from. */
  onSupply: ((logits: Float32Array) => void) | null;
  send(event: Verbs[V]["event"], transfer?: Transferable[]): void;
}

export type Handler<V extends VerbName> = (
  state: HostState,
  args: Verbs[V]["args"],
  context: CallContext<V>,
) => Verbs[V]["result"] | Promise<Verbs[V]["result"]>;

/** One handler for each verb of the protocol. */
export type Handlers = { readonly [V in VerbName]: Handler<V> };
