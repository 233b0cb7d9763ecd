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
import type { Store } from "./store.ts";

export interface CacheContext {
  store: Store;
  /** Hash whatever is read from the cache. */
  verify: boolean;
  http: HttpOptions;
  /** Only the file's own answer says which version it is: what the server announced turned out to be old. */
  fresh?: boolean;
  signal?: AbortSignal | undefined;
  warn(message: string): void;
}

/** Milliseconds that a server has to answer whether a file is still the same. */
const SOON = 5000;

type Kept = Pick<Identity, "size" | "validator"> & { name: string };

export async function openCached(spec: UrlSpec, context: CacheContext, limits?: FileLimits): Promise<Source> {
  const { store, verify, http, fresh, signal, warn } = context;
  const [prefix, access] = await Promise.all([prefixOf(spec.url), accessOf(spec)]);
  const names = await store.names().catch((error: Error) => warn(`${shown(spec.url)} is not kept: ${error.message}`));
  if (!names) return (await HttpSource.open(spec, http, signal, limits)).source;
  const old = names.filter((name) => name.startsWith(prefix));
  /** `earlier` are versions that it replaces, once it has made a model; one that a tab still reads goes another time. */
  const through = async (server: Source, { name, size, validator }: Kept, earlier: string[]) => {
    const others = earlier.filter((other) => other !== name);
    const dropEarlier = async () => {
      for (const other of others) await store.remove(other).catch(() => {});
    };
    const room = others.length > 0 ? await store.room().catch(() => null) : null;
    if (room !== null && room < size) await dropEarlier();
    // A head has room for so much.
    const identity = { url: shown(spec.url).slice(0, 2000), size, validator: validator.slice(0, 500), access };
    return new CachedSource(server, await Entry.open(store, name, identity, warn), verify, dropEarlier);
  };
  const take = (kept: Kept, earlier: string[]) =>
    through(new HttpSource(spec, kept.size, kept.validator, http), kept, earlier);
  const named = async (size: number, validator: string) => ({
    name: prefix + (await hashOf(`${size} ${validator}`, 8)),
    size,
    validator,
  });

  if (old.length > 0 && !fresh) {
    const { size, validator } = await asked(spec, http, signal, limits);
    const same = (head: Head) => head.identity.validator === validator?.slice(0, 500);
    const kept = validator && (size === null ? await complete(store, old, same) : await named(size, validator));
    if (kept && old.includes(kept.name)) return take(kept, old);
  }

  let opened: Awaited<ReturnType<typeof HttpSource.open>>;
  try {
    opened = await HttpSource.open(spec, http, signal, limits, CHUNK);
  } catch (error) {
    const allowed = ({ identity }: Head) => mayGet(identity.access, access);
    const kept = mayPass(error) && !signal?.aborted ? await complete(store, old, allowed) : null;
    if (!kept) throw error;
    const { message } = error as EngineError;
    warn(`${shown(spec.url)} is the one that was kept: whether there is a newer one is not known (${message})`);
    return take(kept, []);
  }
  const { source, validator } = opened;
  // What cannot be told from its next version is not kept.
  if (validator === null) return source;
  return through(source, await named(source.size, validator), old);
}

/** What the server says soon. Where it does not like to be asked, nothing: what it sends decides. */
async function asked(spec: UrlSpec, http: HttpOptions, signal?: AbortSignal, limits?: FileLimits): Promise<Version> {
  try {
    return await HttpSource.ask(spec, { patience: Math.min(http.patience ?? SOON, SOON) }, signal, limits);
  } catch (error) {
    if (signal?.aborted || !(error instanceof EngineError)) throw error;
    return { size: null, validator: null };
  }
}

/** A version that is there as a whole, for a server that does not say its size, or nothing at all. */
async function complete(store: Store, names: string[], fits: (head: Head) => boolean): Promise<Kept | null> {
  for (const name of names) {
    const file = await store.read(name).catch(() => null);
    const head = file && (await readHead(file));
    file?.close();
    if (!head || !fits(head)) continue;
    const { size, validator } = head.identity;
    if (head.marks.size === chunksOf(size)) return { size, validator, name };
  }
  return null;
}

export async function prefixOf(address: string): Promise<string> {
  const url = new URL(address);
  url.hash = "";
  return `${await hashOf(url.href, 12)}-`;
}
