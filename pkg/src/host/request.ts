/** One request on the engine: submitted to the loop, and settled when it finishes, fails, is ended early or is aborted. */

import type { VerbName } from "../rpc/protocol.ts";
import type { AdapterUse } from "../types/index.ts";
import { checkIds, checkTokens } from "./bounds.ts";
import type { CallContext } from "./call.ts";
import type { EngineEvent, EngineWork } from "./events.ts";
import type { Listener } from "./loop.ts";
import type { HostState } from "./state.ts";

/** How a listener settles its request. */
export interface Settle<T> {
  resolve(value: T): void;
  /** Cancels the engine's work and resolves with a value. */
  early(value: () => T): void;
  /** Cancels the engine's work and rejects with an error. */
  fail(error: unknown): void;
  /** Pauses the engine's work, or lets it continue. */
  pause(paused: boolean): void;
}

/** Submits work for `ids` on an engine's session. `listen` makes the listener of its events. */
export function request<T>(
  state: HostState,
  session: number,
  ids: number[],
  work: EngineWork,
  { signal }: { signal: AbortSignal },
  listen: (settle: Settle<T>) => Listener,
): Promise<T> {
  const { loop } = state.model;
  let onAbort = () => {};
  let submitted = false;
  return new Promise<T>((resolve, reject) => {
    signal.throwIfAborted();
    checkIds(ids, state.model.info);
    let number = 0;
    const early = (value: () => T) => {
      loop.cancel(number);
      resolve(value());
    };
    const fail = (error: unknown) => {
      loop.cancel(number);
      reject(error);
    };
    const pause = (paused: boolean) => loop.pause(number, paused);
    const { onEvent, onSlice } = listen({ resolve, early, fail, pause });
    onAbort = () => fail(signal.reason);
    signal.addEventListener("abort", onAbort);
    number = loop.submit(session, ids, work, {
      onEvent: (event) => (event.type === "failed" ? reject(event.error) : onEvent(event)),
      ...(onSlice ? { onSlice } : {}),
    });
    submitted = true;
    state.requests.set(session, fail);
  }).finally(() => {
    signal.removeEventListener("abort", onAbort);
    // A request that was refused leaves the one that is under way on its session.
    if (submitted) state.requests.delete(session);
  });
}

/** Sets a session's adapters. `undefined` keeps those that it has. */
export function adapt(state: HostState, session: number, uses: readonly AdapterUse[] | undefined): void {
  const { engine, adapters } = state.model;
  if (uses) engine.adapt(session, adapters.flat(uses));
}

/** What gathers the events of a request into its result. */
export interface Gather<T> {
  event(event: EngineEvent): void;
  result(): T;
}

/** A request on a session of its own, which ends with it. @param option what the caller gave the ids as */
export async function once<T>(
  state: HostState,
  ids: number[],
  work: EngineWork,
  context: CallContext<VerbName>,
  { event: take, result }: Gather<T>,
  adapters?: readonly AdapterUse[],
  { ephemeral = false, option = "ids" } = {},
): Promise<T> {
  const { engine, info } = state.model;
  checkTokens(ids, info, option);
  const session = engine.open(ephemeral);
  try {
    adapt(state, session, adapters);
    await request<null>(state, session, ids, work, context, (settle) => ({
      onEvent: (event) => (event.type === "finished" ? settle.resolve(null) : take(event)),
    }));
    return result();
  } finally {
    engine.close(session);
  }
}
