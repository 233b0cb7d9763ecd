import { cache, canRun, load } from "ternlight";
import { lazyModel, type SourceOrModel } from "./integration/lazy_model.ts";
import type { LanguageModelStatic } from "./prompt_api/idl.ts";
import { languageModelOf } from "./prompt_api/language_model.ts";
import type { LoadOptions } from "./types/index.ts";

export type * from "./prompt_api/idl.ts";

export interface InstallOptions {
  /** As of `load`. @default none */
  loadOptions?: LoadOptions | undefined;
  /** Takes the place of a `LanguageModel` that the browser has. @default false */
  override?: boolean | undefined;
}

/**
 * The browsers' Prompt API over a model of one's own: an object that is used as their `LanguageModel` is.
 *
 * @param source as of `load`, or a model that is loaded; it is loaded with the first `create`
 * @param loadOptions as of `load`
 */
export function languageModel(source: SourceOrModel, loadOptions?: LoadOptions): LanguageModelStatic {
  return languageModelOf(lazyModel({ load, canRun, cache }, source, loadOptions));
}

/**
 * Gives a page the global `LanguageModel` where its browser has none.
 *
 * @returns whether it is this one now: a browser's own stays, unless `override` says otherwise
 */
export function install(source: SourceOrModel, { loadOptions, override = false }: InstallOptions = {}): boolean {
  if ("LanguageModel" in globalThis && !override) return false;
  const value = languageModel(source, loadOptions);
  Object.defineProperty(globalThis, "LanguageModel", { value, configurable: true, writable: true, enumerable: false });
  return true;
}
