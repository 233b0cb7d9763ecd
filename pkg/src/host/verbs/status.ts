/** What the engine is doing, how it schedules, and the warm-up of the runtime's compilers. */

import { EngineError } from "../../types/errors.ts";
import type { ModelStatus } from "../../types/index.ts";
import type { Handler } from "../call.ts";
import { heldBytes } from "../context.ts";
import { once } from "../request.ts";
import { sequences } from "../sequences.ts";
import { EPHEMERAL, MAX_ROUNDS, WARMUP_MS, warmupRound } from "../warmup.ts";

export const status: Handler<"status"> = ({ model: { engine, parts, crowding } }) => {
  const counts = [...engine.status()] as [number, number, number, number, number, number, number, number];
  const [running, waiting, paused, kvCacheTokens, usedTokens, evictableTokens, recurrentStates, usedStates] = counts;
  return {
    running,
    waiting,
    paused,
    kvCacheTokens,
    usedTokens,
    evictableTokens,
    recurrentStates,
    usedStates,
    memoryBytes: heldBytes(parts),
    threads: crowding.active,
  };
};

export const configure: Handler<"configure"> = ({ model }, given) => {
  const settings = { ...model.settings, ...given };
  model.engine.configure(settings);
  model.settings = settings;
  if (given.maxSequences !== undefined) model.info.maxSequences = sequences(model.engine, given.maxSequences);
  return model.info.maxSequences;
};

export const statistics: Handler<"statistics"> = async (state) => (await state.count()).statistics;

export const health: Handler<"health"> = async (state, { full, damage, watch }) => {
  const { monitor, platform } = state;
  if (monitor) {
    if (watch !== undefined) state.model.loop.watched = monitor.watch(watch);
    if (damage) monitor.damage(damage);
    if (full) await monitor.compareAll();
    return monitor.health;
  }
  for (const [option, given] of Object.entries({ full, damage, watch })) {
    if (given) throw new EngineError("InvalidArgument", `health: ${option} needs the load option health`, { option });
  }
  const { unwatched } = await platform.signals();
  return unwatched(await state.count(), state.model.info.kvCacheType);
};

/** The text needs more code than a page has loaded. */
export const metrics: Handler<"metrics"> = async (state, args, context) => {
  const { metricsText } = await state.platform.signals();
  const { info, adapters } = state.model;
  const now = (await status(state, {}, context as never)) as ModelStatus;
  const measured = { name: info.name ?? "model", info, status: now, statistics: (await state.count()).statistics };
  const known = await health(state, {}, context as never);
  return metricsText([{ ...measured, health: known, adapters: adapters.names }], args);
};

export const warmup: Handler<"warmup"> = async (state, _, context) => {
  const until = performance.now() + WARMUP_MS;
  for (let round = 0; round === 0 || (round < MAX_ROUNDS && performance.now() < until); round++) {
    const { ids, work } = warmupRound(state.model.info);
    await once(state, ids, work, context, { event() {}, result: () => null }, undefined, { ephemeral: EPHEMERAL });
  }
  return null;
};
