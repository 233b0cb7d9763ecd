/** Files on servers, through a cache. */

import { shown } from "../source/address.ts";
import { HttpSource, type Version } from "../source/http.ts";
import type { FileLimits } from "../source/limits.ts";
import { type HttpOptions, mayPass, type UrlSpec } from "../source/request.ts";
import type { Source } from "../source/source.ts";
import { EngineError } from "../types/errors.ts";
import { accessOf, hashOf, mayGet } from "./access.ts";
import { CachedSource } from "./cached.ts";
import { CHUNK, chunksOf, Entry, type Head, type Identity, readHead } from "./entry.ts";
import type { Store, StoredFile } from "./store.ts";

/**
 * What a load goes by until the file itself is there: `kept`, a whole copy, read while the server is asked whether it is still the file;
 * `announced`, what the server says when it is asked; `sent`, nothing but the file's own answer, where what was announced turned out to be old.
 */
export type Trust = "kept" | "announced" | "sent";

export interface CacheContext {
  store: Store;
  /** Hash whatever is read from the cache. */
  verify: boolean;
  http: HttpOptions;
  trust: Trust;
  signal?: AbortSignal | undefined;
  warn(message: string): void;
}

/** Milliseconds that a server has to answer whether a file is still the same. */
const SOON = 5000;

interface Kept extends Pick<Identity, "size" | "validator"> {
  name: string;
  /** Open already, where its head was read. */
  file?: StoredFile;
}

/** What a file is read from, and where it is kept; null where it is not. */
interface Decision {
  server: Source;
  kept: Kept | null;
  /** Versions that it replaces, once it has made a model. */
  earlier: readonly string[];
}

export async function openCached(spec: UrlSpec, context: CacheContext, limits?: FileLimits): Promise<Source> {
  const { store, http, signal, warn } = context;
  const [prefix, access] = await Promise.all([prefixOf(spec.url), accessOf(spec)]);
  const names = await store.names().catch((error: Error) => warn(`${shown(spec.url)} is not kept: ${error.message}`));
  if (!names) return (await HttpSource.open(spec, http, signal, limits)).source;
  const old = names.filter((name) => name.startsWith(prefix));
  return new Opening(spec, { prefix, access, old }, context, limits).open();
}

interface Place {
  /** Begins the names of all its versions. */
  prefix: string;
  access: string;
  /** The versions that are there. */
  old: readonly string[];
}

/** One file on its way to being opened. */
class Opening {
  readonly #spec: UrlSpec;
  readonly #place: Place;
  readonly #context: CacheContext;
  readonly #limits: FileLimits | undefined;
  readonly #asking: Promise<Version> | null;

  constructor(spec: UrlSpec, place: Place, context: CacheContext, limits?: FileLimits) {
    [this.#spec, this.#place, this.#context, this.#limits] = [spec, place, context, limits];
    const { http, signal, trust } = context;
    this.#asking = place.old.length > 0 && trust !== "sent" ? asked(spec, http, signal, limits) : null;
    this.#asking?.catch(() => {});
  }

  async open(): Promise<Source> {
    const { old } = this.#place;
    const copy = this.#context.trust === "kept" && old.length === 1 ? await this.#complete(this.#allowed) : null;
    if (copy) return this.#take(this.#copyOf(copy, old), this.#current(copy));
    const kept = await this.#announced();
    return this.#take(kept && old.includes(kept.name) ? this.#copyOf(kept, old) : await this.#sent());
  }

  /** Fails where the server has another file than this copy. */
  async #current(copy: Kept): Promise<void> {
    const now = (await this.#announced()) ?? (await this.#sent()).kept;
    now?.file?.close();
    // A head that is damaged may say anything.
    if (now?.name === copy.name && now.size === copy.size && now.validator.slice(0, 500) === copy.validator) return;
    const file = shown(this.#spec.url);
    throw new EngineError("SourceChanged", `${file}: the server has another file than the one that was kept`, { file });
  }

  /** What the server announces; null where it says too little. */
  async #announced(): Promise<Kept | null> {
    const { size, validator } = (await this.#asking) ?? UNKNOWN;
    if (validator === null) return null;
    if (size !== null) return this.#named(size, validator);
    return this.#complete(({ identity }) => identity.validator === validator.slice(0, 500));
  }

  /** What it sends; where it sends nothing, a copy. */
  async #sent(): Promise<Decision> {
    const { http, signal, warn } = this.#context;
    const spec = this.#spec;
    let opened: Awaited<ReturnType<typeof HttpSource.open>>;
    try {
      opened = await HttpSource.open(spec, http, signal, this.#limits, CHUNK);
    } catch (error) {
      const kept = mayPass(error) && !signal?.aborted ? await this.#complete(this.#allowed) : null;
      if (!kept) throw error;
      const { message } = error as EngineError;
      warn(`${shown(spec.url)} is the one that was kept: whether there is a newer one is not known (${message})`);
      return this.#copyOf(kept, []);
    }
    const { source, validator } = opened;
    // What cannot be told from its next version is not kept.
    if (validator === null) return { server: source, kept: null, earlier: [] };
    return { server: source, kept: await this.#named(source.size, validator), earlier: this.#place.old };
  }

  /** @param current settles when the server has confirmed a copy; absent where it has */
  async #take({ server, kept, earlier }: Decision, current?: Promise<void>): Promise<Source> {
    if (!kept) return server;
    const { store, verify, warn } = this.#context;
    const { name, size, validator, file } = kept;
    const others = earlier.filter((other) => other !== name);
    // One that a tab still reads goes another time.
    const dropEarlier = async () => {
      for (const other of others) await store.remove(other).catch(() => {});
    };
    const room = others.length > 0 ? await store.room().catch(() => null) : null;
    if (room !== null && room < size) await dropEarlier();
    // A head has room for so much.
    const url = shown(this.#spec.url).slice(0, 2000);
    const identity = { url, size, validator: validator.slice(0, 500), access: this.#place.access };
    const entry = await Entry.open(store, name, identity, warn, file);
    return new CachedSource(server, entry, { verify, dropEarlier, current });
  }

  #copyOf(kept: Kept, earlier: readonly string[]): Decision {
    return { server: new HttpSource(this.#spec, kept.size, kept.validator, this.#context.http), kept, earlier };
  }

  async #named(size: number, validator: string): Promise<Kept> {
    return { name: this.#place.prefix + (await hashOf(`${size} ${validator}`, 8)), size, validator };
  }

  readonly #allowed = ({ identity }: Head): boolean => mayGet(identity.access, this.#place.access);

  /** A version that is there as a whole. */
  async #complete(fits: (head: Head) => boolean): Promise<Kept | null> {
    const { store } = this.#context;
    for (const name of this.#place.old) {
      const file = await store.read(name).catch(() => null);
      const head = file && (await readHead(file));
      if (head && fits(head) && head.marks.size === chunksOf(head.identity.size)) {
        const { size, validator } = head.identity;
        return { size, validator, name, file };
      }
      file?.close();
    }
    return null;
  }
}

const UNKNOWN: Version = { size: null, validator: null };

/** What the server says soon. Where it does not like to be asked, nothing: what it sends decides. */
async function asked(spec: UrlSpec, http: HttpOptions, signal?: AbortSignal, limits?: FileLimits): Promise<Version> {
  try {
    return await HttpSource.ask(spec, { patience: Math.min(http.patience ?? SOON, SOON) }, signal, limits);
  } catch (error) {
    if (signal?.aborted || !(error instanceof EngineError)) throw error;
    return UNKNOWN;
  }
}

export async function prefixOf(address: string): Promise<string> {
  const url = new URL(address);
  url.hash = "";
  return `${await hashOf(url.href, 12)}-`;
}
