/** The models that are served: files of weights, and adapters on them. */

import { ApiError, noModel, retryHeaders } from "../openai/errors.ts";
import type { AdapterUse } from "../types/index.ts";
import type { Ready, Slot } from "./slot.ts";

export interface Chosen {
  slot: Slot;
  adapters: AdapterUse[];
}

export class Models {
  readonly slots: readonly Slot[];

  constructor(slots: readonly Slot[]) {
    this.slots = slots;
  }

  /** The model of a name, or of an adapter's. */
  find(name: string): Chosen {
    const slot = this.slots.find((one) => one.name === name);
    if (slot) return { slot, adapters: scaled(slot) };
    const under = this.slots.find(({ adapters }) => adapters.has(name));
    if (under) return { slot: under, adapters: [{ name }] };
    throw noModel(name);
  }

  /** The model that is meant where a request names none. */
  get first(): Slot {
    return this.slots[0]!;
  }

  /** The name of the model where there is one alone, without adapters that have names, too. */
  get only(): string | null {
    const [slot, ...others] = this.slots;
    return others.length === 0 && slot!.adapters.size === 0 ? slot!.name : null;
  }

  list() {
    return this.slots.flatMap(({ name, created, adapters }) => [
      entry(name, created, null),
      ...[...adapters].map(([adapter, { created }]) => entry(adapter, created, name)),
    ]);
  }

  entry(name: string) {
    const found = this.list().find(({ id }) => id === name);
    if (!found) throw noModel(name);
    return found;
  }

  get allReady(): boolean {
    return this.slots.every(({ state }) => state === "ready" || state === "idle");
  }
}

/** Adapters that were given a scale for requests of the model itself. */
const scaled = (slot: Slot): AdapterUse[] =>
  [...slot.adapters].flatMap(([name, { always }]) => (always === 0 ? [] : [{ name, scale: always }]));

const entry = (id: string, created: number, parent: string | null) => ({
  id,
  object: "model",
  created,
  owned_by: "ternlight",
  ...(parent === null ? {} : { parent }),
});

/** What a request works with. */
export interface Work extends Ready {
  name: string;
  slot: Slot;
  adapters: AdapterUse[];
  /** Ends with the request: the client went, or the server stops. */
  signal: AbortSignal;
  /** Waits until this many log-probabilities may be kept for it, to its end. */
  hold(logprobs: number): Promise<void>;
}

export const stopping = (): ApiError =>
  new ApiError(503, "the server is being stopped", { code: "stopping", headers: retryHeaders(1000) });
