/** A model for as long as a component shows. */

import { useCallback, useEffect, useSyncExternalStore } from "react";
import { type LoadOptions, load, type Model, type ModelSource, type Progress } from "ternlight";
import { type LoadState, type SharedLoad, sharedLoad } from "ternlight/integration";

/** `idle` without a source; `loading` also before the load has begun, on a server for example. */
export type TernlightStatus = "idle" | "loading" | "ready" | "error";

export interface UseTernlight {
  status: TernlightStatus;
  /** How far the load is; null before its first report. */
  progress: Progress | null;
  /** Where `status` is `ready`. */
  model: Model | null;
  /** Where `status` is `error`: why the load failed, or how a loaded model was lost. */
  error: unknown;
  /** Loads again after an error. */
  retry(): void;
}

export interface UseTernlightOptions extends Omit<LoadOptions, "signal" | "onProgress"> {
  /**
   * Suspends the component until the model is ready, and throws what goes wrong, for an error boundary. On a server it throws there, so
   * that the page begins with the fallback.
   * @default false
   */
  suspense?: boolean | undefined;
}

const NOTHING: LoadState = { status: "idle", progress: null, model: null, error: null };
const nothing = () => NOTHING;

/**
 * Loads a model while components that use it are mounted: once for all with equal sources and options. When the last one is gone, its
 * load is aborted, or the model closed, which gives the memory back. Options need no `useMemo`.
 *
 * @param source as of `load`; null loads nothing yet
 */
export function useTernlight(source: ModelSource | null | undefined, options: UseTernlightOptions = {}): UseTernlight {
  const { suspense = false, ...settings } = options;
  const shared = source === null || source === undefined ? null : sharedLoad(load, source, settings);
  const subscribe = useCallback((listener: () => void) => shared?.subscribe(listener) ?? (() => {}), [shared]);
  const state = useSyncExternalStore(subscribe, () => shared?.state ?? NOTHING, nothing);
  useEffect(() => shared?.hold(), [shared]);
  const retry = useCallback(() => shared?.retry(), [shared]);
  if (suspense && shared && state.status !== "ready") throw state.status === "error" ? state.error : waiting(shared);
  const { progress, model, error } = state;
  return { status: shared && state.status === "idle" ? "loading" : state.status, progress, model, error, retry };
}

/** Loads again what failed under `suspense`: for the reset of an error boundary, before it shows its children again. */
export function retryTernlight(source: ModelSource, options: UseTernlightOptions = {}): void {
  const { suspense: _, ...settings } = options;
  sharedLoad(load, source, settings).retry();
}

/** How long a model that nobody has mounted yet is kept for the components that wait for it, in milliseconds. */
const UNTIL_MOUNTED = 5000;

const waits = new WeakMap<SharedLoad, Promise<void>>();

/** What a component that suspends throws: a promise that resolves when it should be rendered again. */
function waiting(shared: SharedLoad): unknown {
  if (typeof document === "undefined")
    return new Error("useTernlight: with suspense the model is loaded in the page alone");
  const wait = waits.get(shared) ?? begun(shared).finally(() => waits.delete(shared));
  waits.set(shared, wait);
  return wait;
}

async function begun(shared: SharedLoad): Promise<void> {
  // Not within a rendering: other components hear of the load.
  await null;
  const release = shared.hold();
  await new Promise<void>((resolve) => {
    const look = () => ["ready", "error"].includes(shared.state.status) && resolve();
    const stop = shared.subscribe(() => look() && stop());
    look();
  });
  setTimeout(release, UNTIL_MOUNTED);
}
