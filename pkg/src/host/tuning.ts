/**
 * Which variants of kernels were fastest on this machine, kept where the runtime has storage, so that the next load measures nothing. A
 * record is one of a processor, a runtime, a build, its threads and the weights' size in powers of two, since all of them decide. It
 * holds for a week, in case that the machine was busy when it was made.
 */

import { hashOf } from "../cache/access.ts";
import type { Store, StoredFile } from "../cache/store.ts";
import type { LoadSettings } from "../rpc/protocol.ts";
import type { Platform } from "./platform.ts";

/** How products are summed, and which weights are touched ahead: the choices of `Engine.tune`. */
export interface Tuning {
  dotProduct: string;
  weightPrefetch: Uint8Array;
}

const WEEK_MS = 7 * 24 * 3600 * 1000;
/** Every record is as long as any other: one that is written over another leaves nothing of it. */
const BYTES = 256;
/** Two for each of eleven kinds, twice at most. */
const MOST_NUMBERS = 44;
const NAME = /^tuning-[0-9a-f]{16}$/;

export class TuningRecord {
  readonly #store: Store;
  readonly #name: string;
  readonly found: Tuning | null;

  private constructor(store: Store, name: string, found: Tuning | null) {
    this.#store = store;
    this.#name = name;
    this.found = found;
  }

  /** Null where nothing is kept. A store that fails costs a measurement, never a load. */
  static async open(
    { cache = true }: LoadSettings,
    build: readonly (string | number)[],
    { openStore, processor }: Platform,
  ): Promise<TuningRecord | null> {
    if (cache === false || !openStore || !processor) return null;
    try {
      const store = await openStore(typeof cache === "string" ? cache : undefined);
      const name = `tuning-${await hashOf([processor(), ...build].join("\n"), 8)}`;
      const file = await store.read(name);
      return new TuningRecord(store, name, file && (await parse(file)));
    } catch {
      return null;
    }
  }

  /** Keeps what was measured, beside what other models' loads have found for kinds that this one has not. */
  async keep({ dotProduct, weightPrefetch }: Tuning): Promise<void> {
    try {
      await this.#dropOld();
      const numbers = [...weightPrefetch, ...(this.found?.weightPrefetch ?? [])].slice(0, MOST_NUMBERS);
      const text = JSON.stringify({ dotProduct, weightPrefetch: numbers, at: Date.now() }).padEnd(BYTES);
      const bytes = new TextEncoder().encode(text);
      const file = await this.#store.write(this.#name, bytes);
      await file?.write(bytes, 0);
      file?.close();
    } catch {
      // The next load measures again.
    }
  }

  async #dropOld(): Promise<void> {
    for (const name of await this.#store.names()) {
      if (!NAME.test(name) || name === this.#name) continue;
      const file = await this.#store.read(name);
      if (file && !(await parse(file))) await this.#store.remove(name);
    }
  }
}

/** Null for what is no record, or an old one. */
async function parse(file: StoredFile): Promise<Tuning | null> {
  try {
    if (file.size !== BYTES) return null;
    const bytes = new Uint8Array(BYTES);
    await file.read(bytes, 0);
    const { at, dotProduct, weightPrefetch } = JSON.parse(new TextDecoder().decode(bytes));
    if (!(Math.abs(Date.now() - at) < WEEK_MS) || !/^dot[24]$/.test(dotProduct)) return null;
    return { dotProduct, weightPrefetch: Uint8Array.from(weightPrefetch) };
  } catch {
    return null;
  } finally {
    file.close();
  }
}
