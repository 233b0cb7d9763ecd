/** From a source to a model, or to what can be said about one. */

import type { HealthWatch } from "../../types/index.ts";
import { Adapters } from "../adapters.ts";
import type { CallContext, Handler } from "../call.ts";
import type { LoadContext } from "../context.ts";
import { Crowding } from "../crowding.ts";
import * as inspection from "../inspect.ts";
import { loadModel } from "../load.ts";
import { EngineLoop } from "../loop.ts";
import type { HostState } from "../state.ts";
import { IdleWarmup } from "../warmup.ts";

export const load: Handler<"load"> = async (state, { source, settings }, context) => {
  const timeline = settings.userTiming ? state.timeline : undefined;
  const begun = performance.now();
  try {
    const { thresholds } = Object(settings.health) as HealthWatch;
    if (thresholds) (await state.platform.signals()).checkThresholds(thresholds);
    const loaded = await loadModel(source, settings, { ...loadContext(state, context), timeline });
    const crowding = new Crowding(loaded.engine, loaded.info.threads);
    const loop = new EngineLoop(loaded.engine, state.platform.turn, state.onFatal, timeline, crowding);
    state.model = {
      ...loaded,
      loop,
      crowding,
      adapters: new Adapters(loaded),
    };
    if (settings.health || !state.platform.asked) await state.count();
    if (settings.health) {
      const { Monitor } = await state.platform.signals();
      const around = {
        engine: loaded.engine,
        memory: loaded.parts[0].memory,
        operations: loaded.parts[0].glue.operations().split(" "),
        recorder: await state.count(),
        kvCacheType: loaded.info.kvCacheType,
        turn: state.platform.turn,
      };
      state.monitor = await Monitor.start(around, settings.health === true ? {} : settings.health);
      loop.watched = state.monitor;
    }
    // What is left of a prompt goes on.
    loop.start();
    if (settings.warmup ?? state.platform.warms) state.idle = new IdleWarmup(state);
    return loaded.info;
  } finally {
    timeline?.add("load", "load", begun);
    timeline?.flush();
  }
};

export const inspect: Handler<"inspect"> = (state, { source, settings, weights }, context) =>
  inspection.inspect(source, settings, weights, loadContext(state, context));

export const canRun: Handler<"canRun"> = (state, { source, settings, memory, free }, context) =>
  inspection.canRun(source, settings, { memory, free }, loadContext(state, context));

/** The context of a load that a call asks for. */
export function loadContext(
  { platform, onFatal, threads }: HostState,
  { signal, send }: CallContext<"load" | "inspect" | "canRun" | "loadAdapter">,
): LoadContext {
  return { platform, signal, onProgress: send as LoadContext["onProgress"], onFatal, threads };
}
