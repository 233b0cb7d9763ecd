/** Workers that are attached to queues, as the place of jobs knows them: each gives a sign of life with what its answers depend on. */

import { randomUUID } from "node:crypto";
import type { Attached, Facts, JobInfo, Store } from "./store.ts";

/** Milliseconds between two signs of life at most, and after which a worker without one counts as gone. */
const BEAT_MS = 10_000;
export const ALIVE_MS = 60_000;
/** Milliseconds after which what gone workers have left is taken away. */
export const LEFT_MS = 86_400_000;

/** Gives signs of life until it is stopped. What fails is done the next time. */
export class Beat {
  /** Of this worker. */
  readonly id = randomUUID();
  readonly #store: Store;
  readonly #timer: NodeJS.Timeout;
  #beating: Promise<void> | null = null;

  /** @param ms after which others may take the worker for dead */
  constructor(store: Store, attached: Attached, ms: number) {
    this.#store = store;
    const beat = () => {
      this.#beating ??= store
        .beat(this.id, attached)
        .catch(() => {})
        .finally(() => {
          this.#beating = null;
        });
    };
    beat();
    this.#timer = setInterval(beat, Math.min(BEAT_MS, ms / 3));
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#beating;
    await this.#store.leave(this.id).catch(() => {});
  }
}

/** Why nobody works on a job: null where somebody may. */
export function unserved({ id, model, identity, facts }: JobInfo, attached: readonly Attached[]): string | null {
  if (attached.some((one) => one.identity === identity)) return null;
  const none = `no worker is attached to the queue of job ${id}`;
  const [nearest] = attached
    .map((one) => ({ ...one, off: differences(facts ?? {}, one.facts) }))
    .filter(({ off }) => off.length > 0)
    .sort((a, b) => a.off.length - b.off.length || Number(b.model === model) - Number(a.model === model));
  if (nearest) return `${none}; the nearest, of ${nearest.model}, differs in ${nearest.off.join(", ")}`;
  return attached.length > 0 ? `${none}; ${attached.length} are attached to others` : none;
}

function differences(own: Facts, other: Facts): string[] {
  const names = Object.keys(own).filter((name) => name in other && own[name] !== other[name]);
  return names.map((name) => `${name} (${other[name]}, the job has ${own[name]})`);
}
