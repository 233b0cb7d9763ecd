/** Sessions: conversations whose tokens and KV cache stay between generations. */

import type { VerbName } from "../../rpc/protocol.ts";
import { EngineError } from "../../types/errors.ts";
import { checkSaved } from "../bounds.ts";
import type { CallContext, Handler } from "../call.ts";
import { adapt } from "../request.ts";
import type { HostState } from "../state.ts";
import { logitsOf } from "./score.ts";

export const closeSession: Handler<"closeSession"> = ({ sessions, requests, model }, { session }) => {
  const id = sessions.get(session);
  sessions.delete(session);
  if (id === undefined) return null;
  requests.get(id)?.(new EngineError("Closed", "the session is closed"));
  model.engine.close(id);
  return null;
};

export const forkSession: Handler<"forkSession"> = (state, { session, as }) =>
  register(state, as, state.model.engine.fork(state.session(session)));

export const rewindSession: Handler<"rewindSession"> = (state, { session, count }) => {
  const { engine } = state.model;
  const id = state.session(session);
  engine.truncate(id, engine.tokens(id).length - count);
  return state.tokens(id);
};

export const heldSession: Handler<"heldSession"> = (state, { session }) => {
  const id = state.sessions.get(session);
  return id === undefined ? [] : state.tokens(id);
};

export const saveSession: Handler<"saveSession"> = async (state, { session, adapters }, context) => {
  const { engine } = state.model;
  // Looked up before the wait: a session that is closed meanwhile is an error and not an empty one.
  const id = state.session(session);
  adapt(state, id, adapters);
  return engine.save(id, await fingerprintOf(state, context), new Uint8Array());
};

export const restoreSession: Handler<"restoreSession"> = async (state, args, context) => {
  const { session, bytes, adapters: uses = [] } = args;
  checkSaved(bytes, state.model.info);
  const fingerprint = await fingerprintOf(state, context);
  const { engine, adapters } = state.model;
  return register(state, session, engine.restore(bytes, fingerprint, adapters.flat(uses)));
};

/** Gives an engine's session the owner's number; answers its ids. */
function register(state: HostState, number: number, id: number): number[] {
  state.sessions.set(number, id);
  return state.tokens(id);
}

/**
 * Logits for some fixed ids. They are the same in every build and runtime and differ between models, so they tell whether a saved
 * session belongs to this model.
 */
async function fingerprintOf(state: HostState, context: CallContext<VerbName>): Promise<Float32Array> {
  if (state.fingerprint) return state.fingerprint;
  const { vocab, contextLength } = state.model.info;
  const count = Math.min(16, vocab, contextLength);
  const ids = Array.from({ length: count }, (_, i) => Math.floor((i * vocab) / count));
  const [row] = await logitsOf(state, ids, false, context);
  state.fingerprint = row!;
  return row!;
}
