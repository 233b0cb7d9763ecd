/** Whether a model can answer here, and what it takes until then. */

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
  if (address && options.cache !== false && (await kept(address, options, cache))) return "available";
  try {
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
  const files = (await cache?.list(typeof directory === "string" ? { directory } : {}).catch(() => [])) ?? [];
  const [, repo] = /^hf:(?:\/\/)?([^/@]+\/[^/@]+)/.exec(address) ?? [];
  const plain = address.replace(/[?#].*/s, "");
  const weights = (url: string) => /\.(safetensors|gguf)$/i.test(url);
  const found = files.filter(({ url }) => {
    if (repo) return url.includes(`/${repo}/resolve/`) && weights(url);
    return plain.endsWith("/") ? url.startsWith(plain) && weights(url) : url === plain;
  });
  return found.length > 0 && found.every(({ complete }) => complete);
}
