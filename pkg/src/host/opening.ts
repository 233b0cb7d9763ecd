/** How the files of a load are opened: through the cache, with integrity checks, and once more where what was kept is wrong. */

import { openCached, type Trust } from "../cache/open.ts";
import { type ModelFiles, openFiles } from "../source/files.ts";
import { IntegrityChecks } from "../source/integrity.ts";
import type { OpenContext } from "../source/open.ts";
import type { Source } from "../source/source.ts";
import type { SourceSpec } from "../source/spec.ts";
import type { EngineError } from "../types/errors.ts";
import type { SourceOptions } from "../types/index.ts";
import type { LoadContext } from "./context.ts";
import type { Platform } from "./platform.ts";

/** Errors about the content of one file. A copy in the cache may be at fault for them. */
const CONTENT = /^(Bad(Magic|Header|Value|Tokenizer)|MissingKey|Unsupported(Version|Type))$/;

/**
 * Runs `work`. Where a server has another file than the one that was kept, `work` runs again with what the servers have announced. Where
 * it fails because a file changed while it was read, or because of a copy in the cache, that copy is deleted and `work` runs once more
 * with what the server has now. What makes no model is not kept, no matter where it came from.
 *
 * @param open opens the files, by what is trusted
 */
export async function retryFresh<T>(
  open: (trust: Trust) => Promise<OpenContext>,
  work: (opening: OpenContext) => Promise<T>,
  trust: Trust = "kept",
): Promise<T> {
  const opening = await open(trust);
  try {
    const made = await work(opening);
    await opening.confirm?.();
    await opening.dropEarlier?.();
    return made;
  } catch (error) {
    // Whatever an old file led to is no error of the new one.
    const current = await (opening.confirm?.() ?? Promise.resolve()).then(
      () => true,
      () => false,
    );
    if (!current && !opening.signal?.aborted) return retryFresh(open, work, "announced");
    const { code = "", detail } = error as Partial<EngineError>;
    const file = detail?.file ?? (code === "BadTokenizer" ? "tokenizer.json" : undefined);
    const old = file !== undefined && CONTENT.test(code) ? await opening.forget?.(file) : detail?.kept;
    if (trust === "sent" || !(code === "SourceChanged" || old)) throw error;
    return retryFresh(open, work, "sent");
  }
}

/**
 * How this load's files are opened. Where there is no cache the load goes on without one; a caller who asked for it gets a warning.
 */
export async function openingOf(
  settings: SourceOptions,
  context: { platform: Pick<Platform, "paths" | "hasher" | "openStore">; signal?: AbortSignal | undefined },
  warn: (message: string) => void,
  trust: Trust,
): Promise<OpenContext> {
  const { cache = true, verify, integrity, connections } = settings;
  const { platform, signal } = context;
  const http = connections ? { connections } : {};
  const opening: OpenContext = { paths: platform.paths, signal, http };
  if (integrity !== undefined) opening.integrity = new IntegrityChecks(integrity, platform.hasher);
  if (cache === false) return opening;
  try {
    if (!platform.openStore) throw new Error("this runtime has no storage, or not in a page that is not secure");
    const store = await platform.openStore(typeof cache === "string" ? cache : undefined);
    const cached = { store, verify: verify === "always", http, signal, warn, trust };
    const opened: Source[] = [];
    opening.url = async (spec, limits) => {
      const source = await openCached(spec, cached, limits);
      opened.push(source);
      return source;
    };
    opening.forget = async (file) => {
      // An error names its file by address, or by name in its folder. The other files stay.
      const wrong = opened.filter(({ name }) => name === file || name.replace(/[?#].*/s, "").endsWith(`/${file}`));
      const old = await Promise.all(wrong.map((source) => source.forget?.()));
      return old.includes(true);
    };
    opening.confirm = async () => {
      await Promise.all(opened.map((source) => source.confirm?.()));
    };
    opening.dropEarlier = async () => {
      for (const source of opened) await source.dropEarlier?.();
    };
  } catch (error) {
    if (settings.cache) warn(`nothing is kept in a cache: ${(error as Error).message}`);
  }
  return opening;
}

/** Opens a model's files for `work`, and closes them after it. */
export async function withFiles<T>(
  spec: SourceSpec,
  opening: OpenContext,
  context: LoadContext,
  work: (files: ModelFiles) => Promise<T>,
): Promise<T> {
  context.onProgress({ phase: "header", loaded: 0, total: 0, bytesPerSecond: 0 });
  const files = await openFiles(spec, opening);
  try {
    return await work(files);
  } finally {
    await Promise.all(files.weights.map((source) => source.close()));
  }
}
