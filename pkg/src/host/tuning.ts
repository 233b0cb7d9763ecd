/**
 * Which variants of kernels were fastest on this machine, kept where the runtime has storage, so that the next load measures nothing. A
 * record is one of a processor, a runtime, a build, its threads and the weights' size in powers of two, since all of them decide. It
 * holds for a week, in case that the machine was busy when it was made.
 */

import { hashOf } from "../cache/access.ts";
import type { Store, StoredFile } from "../cache/store.ts";
import type { LoadSettings } from "../rpc/protocol.ts";
import type { Description } from "../types/info.ts";
import type { Platform } from "./platform.ts";

export interface Tuning {
  /** How products are summed. */
  dotProduct: string;
  /** Which weights are touched ahead: the choices of `Engine.tune`, of which `Engine.recall` takes those that were decided. */
  weightPrefetch: Uint8Array;
  /** How ternary weights are packed, where the options left it open. */
  ternaryPacking?: Packing | undefined;
}

type Packing = NonNullable<Description["ternaryPacking"]>;

const PACKINGS: readonly unknown[] = ["2-bit", "1.6-bit"] satisfies Packing[];

const WEEK_MS = 7 * 24 * 3600 * 1000;
/** Every record is as long as any other: one that is written over another leaves nothing of it. */
const BYTES = 256;
/** Two for each of eleven kinds, twice at most. */
const MAX_NUMBERS = 44;
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
  async keep({ dotProduct, weightPrefetch, ternaryPacking = this.found?.ternaryPacking }: Tuning): Promise<void> {
    try {
      await this.#dropOld();
      const numbers = [...weightPrefetch, ...(this.found?.weightPrefetch ?? [])].slice(0, MAX_NUMBERS);
      const record = { dotProduct, weightPrefetch: numbers, ternaryPacking, at: Date.now() };
      const text = JSON.stringify(record).padEnd(BYTES);
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
    const { at, dotProduct, weightPrefetch, ternaryPacking } = JSON.parse(new TextDecoder().decode(bytes));
    if (!(Math.abs(Date.now() - at) < WEEK_MS) || !/^dot[24]$/.test(dotProduct)) return null;
    if (ternaryPacking !== undefined && !PACKINGS.includes(ternaryPacking)) return null;
    return { dotProduct, weightPrefetch: Uint8Array.from(weightPrefetch), ternaryPacking };
  } catch {
    return null;
  } finally {
    file.close();
  }
}
