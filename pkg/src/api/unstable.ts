/**
 * The engine below the public objects, for the tools of this package: benchmark and doctor. Unstable: it changes with the engine,
 * and no entry of the package exports it.
 */

import { Client } from "../rpc/client.ts";
import type { Verbs } from "../rpc/protocol.ts";
import { withSource } from "../source/with_source.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions, ModelSource } from "../types/index.ts";
import { LoadedModel, type Outside } from "./model.ts";

export type { Phase } from "../rpc/protocol.ts";
export { LoadedModel, type Outside } from "./model.ts";

/** Two timed phases of one run, see `measure` of the protocol. */
export type Measured = Verbs["measure"]["result"];
/** Numbers of each matrix, see `trace` of the protocol. */
export type Traced = Verbs["trace"]["result"];
/** What the machine reads and multiplies, see `roofline` of the protocol. */
export type Roof = Verbs["roofline"]["result"];

/** An engine in a worker of its own, at first without a model. */
export class UnstableEngine {
  readonly client: Client;

  constructor({ spawnEngine }: Pick<Outside, "spawnEngine">) {
    this.client = new Client(spawnEngine());
  }

  /** @param onDecode is called when the prompts are computed */
  measure(args: Verbs["measure"]["args"], signal?: AbortSignal, onDecode?: () => void): Promise<Measured> {
    return this.client.call("measure", args, { signal, ...(onDecode ? { onEvent: onDecode } : {}) });
  }

  /** @param counted whether the int8 codes of inputs are counted */
  trace(ids: number[], counted: boolean, signal?: AbortSignal): Promise<Traced> {
    return this.client.call("trace", { ids, counted }, { signal });
  }

  times(streams: number, signal?: AbortSignal): Promise<number[]> {
    return this.client.call("times", { streams }, { signal });
  }

  /** Needs no model. */
  roofline(args: Verbs["roofline"]["args"], signal?: AbortSignal): Promise<Roof> {
    return this.client.call("roofline", args, { signal });
  }

  /** Ends the worker. */
  async close(): Promise<void> {
    await this.client.close(new EngineError("Closed", "the engine is closed"));
  }
}

/** Loads a model into an engine. Options are not checked. A function, so that what loads no model does not carry it. */
export async function loadInto(
  engine: UnstableEngine,
  outside: Outside,
  source: ModelSource,
  options: LoadOptions,
): Promise<LoadedModel> {
  const { signal, onProgress, ...settings } = options;
  const events = { signal, ...(onProgress ? { onEvent: onProgress } : {}) };
  const info = await withSource(outside, source, { signal, cache: settings.cache }, (spec) =>
    engine.client.call("load", { source: spec, settings }, events),
  );
  return new LoadedModel(engine.client, info, outside);
}
