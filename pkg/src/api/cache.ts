/** The public view of a cache. Where the runtime has no storage, it is empty. */

import { CHUNK, readHead } from "../cache/entry.ts";
import { prefixOf } from "../cache/open.ts";
import type { Kept } from "../cache/store.ts";
import { checkOptions } from "../options/options.ts";
import { addressOf } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { CachedFile, CacheOptions, ModelCache } from "../types/index.ts";

/** @param base the address that relative ones are resolved against; null in runtimes without one */
export function manage(open: ((directory?: string) => Promise<Kept>) | null, base: string | null): ModelCache {
  const store = async (options?: CacheOptions) => {
    const { directory } = checkOptions("cache", options);
    return (await open?.(directory).catch(unreadable)) ?? null;
  };
  return {
    async list(options) {
      const files = await store(options);
      if (!files) return [];
      const all = await Promise.all((await files.names()).map((name) => describe(files, name)));
      return all.filter((one) => one !== null).sort((a, b) => b.written.getTime() - a.written.getTime());
    },
    async delete(what, options) {
      const files = await store(options);
      if (!files) return 0;
      const names = await files.names();
      if (what === undefined) for (const name of names.filter(isTuning)) await remove(files, name);
      const gone = await Promise.all((await chosen(files, names, what)).map((name) => remove(files, name)));
      return gone.filter(Boolean).length;
    },
  };

  async function chosen(files: Kept, names: string[], what: string | URL | CachedFile | undefined) {
    if (what === undefined) return names.filter(isOurs);
    if (typeof what === "object" && what && "id" in what) return names.filter((name) => name === what.id);
    const url = addressOf(what, base, "url");
    const address = url.origin + url.pathname;
    const prefix = await prefixOf(url.href);
    const found = names.filter((name) => name.startsWith(prefix));
    if (found.length > 0 || url.search) return found;
    // The address as the list shows it, without its query, or everything beneath it.
    const beneath = address.endsWith("/");
    const all = await Promise.all(names.map((name) => describe(files, name)));
    return all.flatMap((one) => (one && (beneath ? one.url.startsWith(address) : one.url === address) ? one.id : []));
  }
}

function unreadable(cause: Error): never {
  throw new EngineError("Unreadable", `the cache cannot be opened: ${cause.message}`, {}, { cause });
}

async function remove(files: Kept, name: string): Promise<boolean> {
  try {
    return await files.remove(name);
  } catch (cause) {
    const { message } = cause as Error;
    throw new EngineError("InUse", `a file of the cache cannot be deleted: ${message}`, { file: name }, { cause });
  }
}

/** What loads have measured of the machine. */
const isTuning = (name: string) => name.startsWith("tuning-");
const isOurs = (name: string) => /^[0-9a-f]{24}-[0-9a-f]{16}$/.test(name);

async function describe(files: Kept, id: string): Promise<CachedFile | null> {
  const file = isOurs(id) ? await files.read(id).catch(() => null) : null;
  if (!file) return null;
  try {
    const head = await readHead(file).catch(() => null);
    const { url, size } = head?.identity ?? { url: "", size: file.size };
    let kept = 0;
    // The chunks that are there, and not all that a damaged size would have.
    for (const chunk of head?.marks.keys() ?? []) kept += Math.min(CHUNK, size - chunk * CHUNK);
    return { id, url, size, kept, complete: head !== null && kept === size, written: new Date(file.written) };
  } finally {
    file.close();
  }
}
