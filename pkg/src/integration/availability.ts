/** Whether a model can answer here, and what it takes until then. */

import { parseHubName } from "../source/hub_name.ts";
import { partsOf } from "../source/shards.ts";
import { EngineError } from "../types/errors.ts";
import type { CanRun, LoadOptions, ModelCache, ModelSource } from "../types/index.ts";

/**
 * `available`: nothing of it has to be downloaded. `downloadable`: it fits, and something has to come. `unavailable`: it does not fit, is
 * of a kind that does not run, or is not there. The word `downloading` of such interfaces is known to who downloads.
 */
export type Availability = "available" | "downloadable" | "unavailable";

/** Functions of `ternlight`, or of `ternlight/edge`. */
export interface AvailabilityTools {
  canRun(source: ModelSource, options?: LoadOptions): Promise<CanRun>;
  cache?: ModelCache;
}

/** What does not pass by itself: the model is absent, does not run here, or is damaged. */
const FOR_GOOD = /^(NotFound|Bad|Missing|Unsupported|ShapeMismatch|Truncated|TooLarge|Unreadable)/;

/**
 * Tells whether a model can be loaded with these options, from its header alone.
 *
 * @throws {EngineError} `InvalidArgument` for a wrong option or source; `Network` where the server cannot be asked
 * @example
 * ```ts
 * import { cache, canRun } from "ternlight";
 * import demo from "ternlight/demo";
 * import { availability } from "ternlight/integration";
 *
 * console.log(await availability({ cache, canRun }, demo));
 * ```
 */
export async function availability(
  { canRun, cache }: AvailabilityTools,
  source: ModelSource,
  options: LoadOptions = {},
): Promise<Availability> {
  const address = remote(source);
  try {
    if (address && options.cache !== false && (await kept(address, options, cache))) return "available";
    const { ok } = await canRun(source, options);
    if (!ok) return "unavailable";
  } catch (error) {
    if (error instanceof EngineError && FOR_GOOD.test(error.code)) return "unavailable";
    throw error;
  }
  return address ? "downloadable" : "available";
}

/** The address that a source's bytes come from; null where they are here. */
function remote(source: ModelSource): string | null {
  if (source instanceof URL) return /^https?:$/.test(source.protocol) ? source.href : null;
  if (typeof Request !== "undefined" && source instanceof Request) return source.url;
  if (typeof source !== "string") return null;
  if (/^(https?|hf):/i.test(source)) return source;
  // In a page and its workers every other text is an address, too.
  const base = typeof document === "undefined" ? globalThis.location?.href : document.baseURI;
  return base && !/^[a-z][a-z0-9+.-]+:/i.test(source) ? new URL(source, base).href : null;
}

/** Whether the cache has all of a file, or of the weights of a folder or repository. */
async function kept(address: string, { cache: directory }: LoadOptions, cache?: ModelCache): Promise<boolean> {
  const wanted = address.startsWith("hf:") ? ofHub(address) : ofAddress(address);
  const files = (await cache?.list(typeof directory === "string" ? { directory } : {}).catch(() => [])) ?? [];
  const whole = new Map(files.map(({ url, complete }) => [url, complete]));
  const found = [...whole.keys()].filter(wanted);
  return found.length > 0 && found.every((url) => partsOf(url).every((part) => whole.get(part)));
}

const isWeights = (url: string) => /\.(safetensors|gguf)$/i.test(url);

/** Tells which addresses of the cache a model comes from. */
function ofAddress(address: string): (url: string) => boolean {
  const plain = address.replace(/[?#].*/s, "");
  return (url) => (plain.endsWith("/") ? url.startsWith(plain) && isWeights(url) : url === plain);
}

/**
 * The file of a name, at its revision. A name without one means what the hub lists; here any model counts that is kept of it, as it does
 * for a load while the hub cannot be reached.
 */
function ofHub(name: string): (url: string) => boolean {
  const { repo, revision, path } = parseHubName(name);
  const place = [...repo.split("/"), "resolve", revision, ...path.split("/")].map(encodeURIComponent).join("/");
  const folder = path === "" || path.endsWith("/");
  return (url) => (folder ? url.includes(`/${place}`) && isWeights(url) : url.endsWith(`/${place}`));
}
