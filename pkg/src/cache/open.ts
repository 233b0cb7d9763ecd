/** Files on servers, through a cache. */

import { EngineError } from "../errors.ts";
import { HttpSource, type Version } from "../source/http.ts";
import { type HttpOptions, mayPass, shown, type UrlSpec } from "../source/request.ts";
import { digest } from "../source/sha256.ts";
import type { Source } from "../source/source.ts";
import { CachedSource } from "./cached.ts";
import { CHUNK, Entry, type Identity, readHead } from "./entry.ts";
import type { Store } from "./store.ts";

export interface CacheContext {
  store: Store;
  /** Hash whatever is read from the cache. */
  verify: boolean;
  http: HttpOptions;
  signal?: AbortSignal | undefined;
  warn(message: string): void;
}

export async function openCached(spec: UrlSpec, context: CacheContext): Promise<Source> {
  const { store, verify, http, signal, warn } = context;
  const prefix = await prefixOf(spec.url);
  const names = await store.names().catch((error: Error) => warn(`${shown(spec.url)} is not kept: ${error.message}`));
  if (!names) return (await HttpSource.open(spec, http, signal)).source;
  const old = names.filter((name) => name.startsWith(prefix));
  const through = async (server: Source, { size, validator }: Version, name: string) => {
    // A head has room for so much.
    const identity = { url: shown(spec.url).slice(0, 2000), size: size!, validator: validator!.slice(0, 500) };
    return new CachedSource(server, await Entry.open(store, name, identity, warn), verify);
  };

  if (old.length > 0) {
    let version = await asked(spec, http, signal);
    if (version instanceof EngineError) {
      const kept = await complete(store, old);
      if (!kept) throw version;
      warn(
        `${shown(spec.url)} is the one that was kept: whether there is a newer one is not known (${version.message})`,
      );
      version = kept;
    }
    const { size, validator } = version;
    const name = size !== null && validator !== null ? await nameOf(prefix, size, validator) : "";
    if (old.includes(name)) return through(new HttpSource(spec, size!, validator, http), version, name);
  }

  const { source, validator } = await HttpSource.open(spec, http, signal, CHUNK);
  // What cannot be told from its next version is not kept.
  if (validator === null) return source;
  const name = await nameOf(prefix, source.size, validator);
  // Earlier versions; one that a tab still reads goes another time.
  await Promise.all(old.map((other) => other !== name && store.remove(other).catch(() => {})));
  return through(source, { size: source.size, validator }, name);
}

/** What the server says; an error of those that may pass. Where it does not like to be asked, nothing. */
async function asked(spec: UrlSpec, http: HttpOptions, signal?: AbortSignal): Promise<Version | EngineError> {
  try {
    return await HttpSource.ask(spec, http, signal);
  } catch (error) {
    if (mayPass(error)) return error;
    if (signal?.aborted || !(error instanceof EngineError)) throw error;
    return { size: null, validator: null };
  }
}

/** The version that is whole, for when the server cannot be asked. */
async function complete(store: Store, names: string[]): Promise<Identity | null> {
  for (const name of names) {
    const file = await store.read(name).catch(() => null);
    const head = file && (await readHead(file));
    file?.close();
    if (!head) continue;
    const { size } = head.identity;
    if (Array.from({ length: Math.ceil(size / CHUNK) }, (_, i) => i).every(head.isKept)) return head.identity;
  }
  return null;
}

export async function prefixOf(address: string): Promise<string> {
  const url = new URL(address);
  url.hash = "";
  return `${await hashOf(url.href, 12)}-`;
}

const nameOf = async (prefix: string, size: number, validator: string) =>
  prefix + (await hashOf(`${size} ${validator}`, 8));

async function hashOf(text: string, bytes: number): Promise<string> {
  const hash = (await digest(new TextEncoder().encode(text))).subarray(0, bytes);
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
