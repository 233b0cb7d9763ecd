/** A browser's worker as the host's platform. Only workers write to the origin's storage. */

import { openStore } from "../cache/opfs_write.ts";
import type { Platform } from "../host/platform.ts";
import { EngineError } from "../types/errors.ts";
// Imported one by one: the whole module would bring `spawnEngine`, and with it the worker's own address, into the worker.
import { cores, fetchFile, freeMemory, ownPort, processor, spawnSibling, turn } from "./browser.ts";

/**
 * Imports a file that only some models need. Bundlers copy the file that is named, as they do with wasm, and put its new address in. They
 * must not follow the import: most of them build a worker as one file.
 */
async function lazy<Module>(url: URL, who: string): Promise<Module> {
  try {
    return await import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ url.href);
  } catch (cause) {
    const message = `could not import ${url}, which ${who} need: ${(cause as Error).message}`;
    throw new EngineError("Network", message, { file: url.href }, { cause });
  }
}

const chats: Platform["chats"] = () => lazy(new URL("./chat.js", import.meta.url), "models with a chat template");
const formats: Platform["formats"] = () => lazy(new URL("./formats.js", import.meta.url), "answers with a format");
const gguf: Platform["gguf"] = () => lazy(new URL("./gguf.js", import.meta.url), "tokenizers of GGUF files");
const maps: Platform["maps"] = () => lazy(new URL("./maps.js", import.meta.url), "maps of activations");
const signals: Platform["signals"] = () => lazy(new URL("./signals.js", import.meta.url), "metrics");
const split: Platform["split"] = () => lazy(new URL("./split.js", import.meta.url), "models larger than one memory");

const runtime = { cores, fetchFile, freeMemory, ownPort, processor, spawnSibling, turn };

export const platform: Platform = {
  ...runtime,
  chats,
  formats,
  gguf,
  maps,
  signals,
  split,
  openStore,
  asked: true,
  warms: true,
};
